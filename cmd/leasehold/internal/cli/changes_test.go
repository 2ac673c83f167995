package cli

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/cmd/leasehold/internal/run"
	"github.com/leasehold-go/leasehold/cmd/leasehold/internal/text"
	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/mutex"
	"github.com/leasehold-go/leasehold/semaphore"
	"github.com/leasehold-go/leasehold/singleflight"
)

// place is the key acme of a family of permits, as the command reaches it.
type place struct {
	t      *testing.T
	target redistest.Target
	url    string
	family string
	flags  []string
}

func newPlace(t *testing.T, target redistest.Target) *place {
	family := redistest.Name(t)
	return &place{t, target, target.URL(t), family, []string{"--semaphore", family, "--key", "acme"}}
}

func (p *place) open(cfg semaphore.Config) *semaphore.Semaphore {
	p.t.Helper()
	cfg.Name = p.family
	s := redistest.Must(semaphore.New(p.target.Client(p.t), cfg))(p.t)
	p.t.Cleanup(func() { redistest.WantErr(p.t, s.Close(context.Background())) })
	return s
}

func (p *place) take(total int) *semaphore.Lease {
	p.t.Helper()
	return redistest.Must(p.open(semaphore.Config{Limit: 2, Total: total}).TryAcquire(p.t.Context(), "acme"))(p.t)
}

func (p *place) set(says string, args ...string) {
	p.t.Helper()
	ok(p.t, p.url, says, append([]string{"set-limit", "--semaphore", p.family}, args...)...)
}

// mustInsist wants a setting to be refused until somebody says which keys are meant.
func (p *place) mustInsist(args ...string) {
	p.t.Helper()
	refused(p.t, p.url, "--has-total", append([]string{"set-limit", "--semaphore", p.family}, args...)...)
}

func (p *place) revoke(id string) {
	p.t.Helper()
	ok(p.t, p.url, "is revoked", append([]string{"revoke", "--reason", "host is gone", id}, p.flags...)...)
}

func (p *place) listed() (s text.State) {
	p.t.Helper()
	redistest.WantErr(p.t, json.Unmarshal([]byte(ok(p.t, p.url, "", append([]string{"show", "--json"}, p.flags...)...)), &s))
	return s
}

// wantHolder wants one holder, with the figures of its key.
func (p *place) wantHolder(l *semaphore.Lease, limit int, stored, hasTotal bool) {
	p.t.Helper()
	if s := p.listed(); len(s.Holders) != 1 || s.InUse != 1 || s.Holders[0].ID != l.ID() || s.Limit != limit || s.StoredLimit != stored || s.HasTotal != hasTotal {
		p.t.Errorf("show lists %+v; the lease is %s", s, l.ID())
	}
}

func refused(t *testing.T, url, says string, args ...string) {
	t.Helper()
	out, err := do(t, url, args...)
	e, coded := errors.AsType[*run.Error](err)
	redistest.Check(t, err != nil && strings.Contains(err.Error(), says) && (isUsage(err) || coded && e.Code == run.CodeUsage),
		"%q: %v\n%s", args, err, out)
}

func wantRevoked(t *testing.T, ctx context.Context) {
	t.Helper()
	redistest.Get(t, "the end of the Context", ctx.Done())
	redistest.WantErr(t, context.Cause(ctx), leasehold.ErrRevoked, redistest.Says("host is gone"))
}

// The answer says what is in force, what was before, where it is stored and how to go back, of
// a family that is idle, too.
func TestSetLimitSaysWhatItChanged(t *testing.T) {
	rdb, url := mini(t)
	for _, total := range []int{0, 50} {
		family := redistest.Name(t)
		part, more, flags := "leasehold:sem:{"+family+":a b}:limit", " ", []string{}
		if total > 0 {
			part, more, flags = "leasehold:sem:{"+family+"}:limits", " --has-total ", []string{"--has-total"}
		}
		set := func(n, says string) {
			t.Helper()
			ok(t, url, says, append([]string{"set-limit", "--semaphore", family, "--key", "a b", n}, flags...)...)
		}
		show := []string{"show", "--semaphore", family, "--key", "a b"}
		set("3", "is 3 for all processes…before it was what each process is configured with…"+part+"…without an expiry…not known here"+
			"…leasehold set-limit --semaphore "+family+" --key 'a b'"+more+"0")
		s := redistest.Must(semaphore.New(rdb, semaphore.Config{Name: family, Limit: 10, Total: total}))(t)
		l := redistest.Must(s.TryAcquire(t.Context(), "a b"))(t)
		set("5", "is 5…before it was 3, set by hand…figure (10)")
		ok(t, url, "1 of 5 in use (limit set by hand; configured 10)", show...)
		_, err := s.TryAcquireN(t.Context(), "a b", 5) // by a handle that was there before
		redistest.WantErr(t, err, leasehold.ErrBusy)
		set("0", "what each process is configured with (10)…before it was 5, set by hand")
		out := ok(t, url, "1 of 10 in use", show...)
		redistest.Check(t, !strings.Contains(out, "by hand"), "show: %s", out)
		redistest.WantErr(t, l.Release())
		redistest.WantErr(t, s.Close(t.Context()))
	}
}

// The command that goes back names the key as a shell takes it.
func TestSetLimitSaysTheKeyAsItIs(t *testing.T) {
	_, url := mini(t)
	for key, quoted := range map[string]string{`a\b`: `'a\b'`, `it's`: `'it'\''s'`, "a/b": "a/b", "\x1b'\\": `$'\x1b\'\\'`} {
		ok(t, url, "--key "+quoted+" 0\n", "set-limit", "--semaphore", "n", "--key", key, "3")
	}
}

// The command that goes back does so, also below another prefix, and where keys of two families have the name.
func TestSetLimitSaysHowToGoBack(t *testing.T) {
	rdb, url := mini(t)
	for _, prefix := range []string{"", "demo"} {
		for _, total := range []int{0, 5} {
			s := redistest.Must(semaphore.New(rdb, semaphore.Config{Name: "exports", Prefix: prefix, Limit: 1, Total: total}))(t)
			redistest.Must(s.TryAcquire(t.Context(), "acme"))(t)
			t.Cleanup(func() { redistest.WantErr(t, s.Close(context.Background())) })
		}
		for _, meant := range []string{"--has-total", "--has-total=false"} {
			out := ok(t, url, "is 3", "set-limit", "--prefix", prefix, "--semaphore", "exports", "--key", "acme", meant, "3")
			_, back, _ := strings.Cut(out, ": leasehold ")
			ok(t, url, "before it was 3, set by hand", strings.Fields(back)...)
		}
	}
}

// A total that was set by mistake hides no permit of a family that has none.
func TestStoredTotalOfAFamilyWithoutOne(t *testing.T) {
	redistest.Matrix(t, func(t *testing.T, target redistest.Target) {
		p := newPlace(t, target)
		l := p.take(0)
		p.mustInsist("--total", "200")
		p.set("", "--total", "200", "--has-total")
		p.wantHolder(l, 2, false, false)
		p.mustInsist("--key", "acme", "5")
		p.set("", "--key", "acme", "5", "--has-total=false")
		p.wantHolder(l, 5, true, false)
		p.revoke(l.ID())
		wantRevoked(t, l.Context())
		p.set("", "--total", "0")
		p.set("", "--key", "acme", "6") // keys without a total are all that is left
	})
}

// A family with a total on which nothing happens is known by what is stored of it.
func TestIdleFamilyWithATotal(t *testing.T) {
	redistest.Matrix(t, func(t *testing.T, target redistest.Target) {
		p := newPlace(t, target)
		p.set("", "--total", "9")
		p.set("before it was 9, set by hand…--total --hashed 0", "--total", "--hashed", "9")
		p.set("", "--key", "acme", "1")
		s := p.listed()
		redistest.Check(t, s.HasTotal && s.Total == 9 && s.Limit == 1 && s.StoredLimit, "show lists %+v", s)
		p.wantHolder(p.take(9), 1, true, true)
	})
}

// Where one kind of keys cannot be read, a lease that is not among the others may be there.
func TestNoLeaseIsSaidOnlyWhereAllWasRead(t *testing.T) {
	redistest.Each(t, func(t *testing.T, target redistest.Target) {
		for _, total := range []int{9, 0} {
			p := newPlace(t, target)
			l := p.take(total)
			broken := "leasehold:sem:{" + p.family + "}:queue"
			if total > 0 {
				broken = "leasehold:sem:{" + p.family + ":acme}:queue"
			}
			redistest.WantErr(t, target.Client(t).Set(t.Context(), broken, "text", 0).Err())
			_, err := do(t, p.url, append([]string{"revoke", "--reason", "r", "AAAAAAAA-1"}, p.flags...)...)
			e, ok := errors.AsType[*run.Error](err)
			redistest.Check(t, ok && e.Code == run.CodeUnreachable && !errors.Is(err, leasehold.ErrNoLease), "total %d: the revocation of an unknown lease: %v", total, err)
			p.revoke(l.ID())
			wantRevoked(t, l.Context())
		}
	})
}

// Leases and waiters' places that show lists are revoked by their ids; again is no error. The keys of a family with a
// total and those of the same name without one are shown beside each other.
func TestRevokeTakesWhatShowLists(t *testing.T) {
	redistest.Matrix(t, func(t *testing.T, target redistest.Target) {
		p := newPlace(t, target)
		show := append([]string{"show"}, p.flags...)
		leases, failed := map[bool]*semaphore.Lease{}, make(chan error, 2)
		for hasTotal, total := range map[bool]int{true: 50, false: 0} {
			s := p.open(semaphore.Config{Limit: 2, Total: total})
			leases[hasTotal] = redistest.Must(s.AcquireN(t.Context(), "acme", 2))(t)
			go func() { failed <- redistest.ErrorOf(s.Acquire(t.Context(), "acme")) }()
		}
		redistest.Eventually(t, "two waiters", func() bool { return strings.Count(ok(t, p.url, "", show...), "\nWAITER") == 2 })
		ok(t, p.url, "(with a total)…(without a total)", show...)
		for line := range strings.Lines(ok(t, p.url, "", append(show, "--json")...)) {
			var s text.State
			redistest.WantErr(t, json.Unmarshal([]byte(line), &s))
			l := leases[s.HasTotal]
			redistest.CheckNow(t, l != nil && len(s.Holders) == 1 && s.Holders[0].ID == l.ID() && len(s.Waiters) == 1 && s.HasTotal == (s.Total == 50),
				"a line is %s", line)
			for _, id := range []string{s.Waiters[0].ID, l.ID()} {
				p.revoke(id)
				p.revoke(id)
			}
			redistest.WantErr(t, redistest.Get(t, "the waiter's error", failed), leasehold.ErrRevoked)
			wantRevoked(t, l.Context())
			delete(leases, s.HasTotal)
		}
		redistest.Check(t, len(leases) == 0 && p.listed().InUse == 0, "not listed are %v; then show lists %+v", leases, p.listed())
	})
}

// So are a lock of a family with hashed keys, and a load.
func TestLocksAndLoadsAreRevoked(t *testing.T) {
	redistest.Matrix(t, func(t *testing.T, target redistest.Target) {
		rdb, p := target.Client(t), newPlace(t, target)
		m := redistest.Must(mutex.New(rdb, mutex.Config{Name: p.family, HashKeys: true}))(t)
		l := redistest.Must(m.Lock(t.Context(), "acme"))(t)
		p.flags = []string{"--mutex", p.family, "--key", "acme", "--hashed"}
		p.revoke(p.listed().Holders[0].ID)
		wantRevoked(t, l.Context())
		redistest.WantErr(t, m.Close(context.Background()))

		g := redistest.Must(singleflight.New(rdb, singleflight.Config[int]{Name: p.family, TTL: time.Minute}))(t)
		loads := make(chan context.Context, 1)
		go g.Do(t.Context(), "acme", func(ctx context.Context) (int, error) {
			loads <- ctx
			<-ctx.Done()
			return 7, nil
		})
		ctx := redistest.Get(t, "a load", loads)
		p.flags = []string{"--cache", p.family, "--key", "acme"}
		p.revoke(p.listed().Holders[0].ID)
		wantRevoked(t, ctx)
		redistest.WantErr(t, g.Close(context.Background()))
	})
}

func TestChangesRefuseWhatCannotBe(t *testing.T) {
	_, url := mini(t)
	lease := "AAAAAAAAAAAAAAAAAAAAAA.1"
	for _, args := range [][]string{
		{"set-limit", "--semaphore", "n", "--key", "k", "100001"},
		{"set-limit", "--semaphore", "n", "--key", "k", "many"},
		{"set-limit", "--semaphore", "n", "5"},
		{"set-limit", "--key", "k", "5"},
		{"set-limit", "--semaphore", "n", "--key", "k", "--total", "5"},
		{"set-limit", "--semaphore", "n", "--total", "1000001"},
		{"set-limit", "--semaphore", "n", "--total", "5", "--has-total=false"},
		{"revoke", "--mutex", "n", "--key", "k", "--reason", "r"},
		{"revoke", "--mutex", "n", "--key", "k", "id.1"},
		{"revoke", "--mutex", "n", "--reason", "r", "id.1"},
		{"revoke", "--semaphore", "n", "--reason", "r", "id.1"},
		{"revoke", "--guard", "n", "--key", "k", "--reason", "r", "id.1"},
		{"revoke", "--mutex", "n", "--key", "k", "--reason", strings.Repeat("r", 201), lease},
		{"revoke", "--mutex", "n", "--key", "k", "--reason", "", lease},
		{"-hAAAAAA-1", "revoke", "--mutex", "n", "--key", "k", "--reason", "r"},
	} {
		refused(t, url, "", args...)
	}
}

// IDs are taken as they are listed, also those that read as flags.
func TestRevokeTakesIDsThatReadAsFlags(t *testing.T) {
	_, url := mini(t)
	for _, id := range []string{"AAAAAAAA-1", "-hAAAAAA-1", "--reason-22", "---------3", "-v-A-_AA-18446744073709551615"} {
		for _, args := range [][]string{
			{"revoke", "--mutex", "n", "--key", "k", "--reason", "r", id},
			{"revoke", id, "--mutex", "n", "--key=k", "--reason=r"},
			{"--redis", url, "revoke", "--mutex", "n", id, "--key", "k", "--reason", id},
			{"revoke", "--mutex", "n", "--key", "k", "--reason", "r", "--", id},
			{"revoke", "--mutex", "n", "--reason", "r", "--key", "cache", id},
		} {
			out, err := do(t, url, args...)
			redistest.Check(t, errors.Is(err, leasehold.ErrNoLease), "%q: %v, %s", args, err, out)
		}
	}
}
