package cli

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/mutex"
	"github.com/leasehold-go/leasehold/semaphore"
)

// Names of any bytes come back from JSON as they are, and none acts on a terminal.
func TestNamesInJSONAreReversibleAndHarmless(t *testing.T) {
	rdb, url := mini(t)
	family := redistest.Name(t)
	m := redistest.Must(mutex.New(rdb, mutex.Config{Name: family, Label: "l\u009bl"}))(t)
	defer func() { _ = m.Close(t.Context()) }()
	names := map[string]bool{"a\xff": true, "a\xfe": true, "a\ufffd": true, "a\u009b2J": true, "a\u202eb": true, "a\x1b[2J": true, "a\U000e0001\u2028\x7f": true}
	for name := range names {
		redistest.Must(m.Lock(t.Context(), name))(t)
	}
	check := func(out string) (key string) {
		t.Helper()
		for _, r := range out {
			redistest.Check(t, r != '\x1b' && r != '\u009b' && r != '\u202e' && r != '\U000e0001' && r != 0x7f, "a raw %U: %q", r, out)
		}
		var x struct {
			Key   string
			Bytes string `json:"key_base64"`
		}
		err := json.Unmarshal([]byte(out), &x)
		redistest.CheckNow(t, err == nil, "%v: %s", err, out)
		if x.Bytes != "" {
			b, _ := base64.StdEncoding.DecodeString(x.Bytes)
			return string(b)
		}
		return x.Key
	}
	out := ok(t, url, "", "ls", "--json", "--family", family)
	found := map[string]bool{}
	for line := range strings.Lines(out) {
		found[check(line)] = true
	}
	redistest.Check(t, len(found) == len(names), "%d of %d names are listed: %q", len(found), len(names), out)
	for name := range names {
		redistest.Check(t, found[name], "%q is not listed", name)
		if out := ok(t, url, "", "show", "--json", "--mutex", family, "--key", name); check(out) != name {
			t.Errorf("show of %q: %s", name, out)
		}
	}
}

// Nor do the words of a server that answers all with an error.
func TestWordsOfAServerAreHarmless(t *testing.T) {
	server := redistest.Mini(t)
	server.SetError("ERR \x1b[2J\u202e C:\\")
	_, err := do(t, "redis://"+server.Addr(), "ls")
	redistest.CheckNow(t, err != nil, "ls of a server that only errs: no error")
	said := message(err, nil)
	redistest.Check(t, strings.Contains(said, `\x1b[2J\u202e C:\\`) && !strings.ContainsAny(said, "\x1b\u202e"), "%q", said)
	redistest.Expect(t, message(errors.New("a\n\"C:\\\\\""), nil), "leasehold: a\n\"C:\\\\\"", "%q")
}

// ls and show say for how long a lease has been held, and point at one that may hang.
func TestLeaseThatIsHeldForLongIsFound(t *testing.T) {
	rdb, url := mini(t)
	now := time.Now()
	hold := func(key string, since time.Time) {
		base := "leasehold:mtx:{jobs:" + key + "}:"
		rdb.ZAdd(t.Context(), base+"holders", redis.Z{Score: float64(now.Add(time.Minute).UnixMilli()), Member: "AbCdEfGh_-0123456789xy~host:1.1.1.30000.1"})
		rdb.Set(t.Context(), base+"fence", since.UnixMicro(), time.Hour)
	}
	hold("quick", now.Add(-10*time.Second))
	hold("slow", now.Add(-4*time.Minute))
	hold("hangs", now.Add(-20*time.Minute))
	for _, key := range []string{"a", "b", "c"} {
		hold(key, now.Add(-2*time.Second))
	}
	out := ok(t, url, "USUAL…hangs…20m0… !…slow…quick", "ls", "--sort", "held")
	if strings.Count(out, " !") != 1 || strings.Count(out, "  10s") != 7 { // of quick, and what is usual of each
		t.Errorf("by the time held:\n%s", out)
	}
	out = ok(t, url, "hangs…slow", "ls", "--held-longer", "3m")
	redistest.Check(t, !strings.Contains(out, "quick"), "longer than 3m:\n%s", out)
	ok(t, url, "usually held for 10s… !", "show", "--mutex", "jobs", "--key", "hangs")
}

// ls and show say which leases may be idle, because their process keeps them. Such a lease may have
// served many callers, so nothing is concluded from how long it has been held.
func TestLeaseThatMayBeIdleIsMarked(t *testing.T) {
	rdb, url := mini(t)
	open := func(label string, keepFor time.Duration) *semaphore.Semaphore {
		s := redistest.Must(semaphore.New(rdb, semaphore.Config{Name: "exports", Limit: 3, TTL: 20 * time.Second, KeepFor: keepFor, Label: label}))(t)
		t.Cleanup(func() { _ = s.Close(context.Background()) })
		return s
	}
	keeper, strict := open("keeper", 10*time.Second), open("strict", 0)
	redistest.WantErr(t, redistest.Must(keeper.Acquire(t.Context(), "acme"))(t).Release())
	defer redistest.Must(strict.Acquire(t.Context(), "acme"))(t).Release()
	defer redistest.Must(strict.Acquire(t.Context(), "globex"))(t).Release()
	out := ok(t, url, "acme…2/3…may be idle\n", "ls")
	out += ok(t, url, "2 of 3 in use…keeper (may be idle)", "show", "--semaphore", "exports", "--key", "acme")
	redistest.Check(t, strings.Count(out, "may be idle") == 2, "more is marked than what is kept:\n%s", out)
	out = ok(t, url, `"key":"acme"…"keeps":true`, "ls", "--json", "acme")
	out += ok(t, url, `"label":"keeper"…"keeps":true`, "show", "--semaphore", "exports", "--key", "acme", "--json")
	out += ok(t, url, "", "ls", "--json", "globex")
	redistest.Check(t, strings.Count(out, "keeps") == 2, "more is marked than what is kept:\n%s", out)
	for _, key := range []string{"a", "b", "c", "d", "e"} { // held for longer than ten TTLs
		base := "leasehold:mtx:{busy:" + key + "}:"
		rdb.ZAdd(t.Context(), base+"holders", redis.Z{Score: float64(time.Now().Add(time.Minute).UnixMilli()), Member: "AbCdEfGh_-0123456789xy^~host:1.1.1.5000.1"})
		rdb.Set(t.Context(), base+"fence", time.Now().Add(-time.Hour).UnixMicro(), time.Hour)
	}
	out = ok(t, url, "1h00m…may be idle", "ls", "--family", "busy")
	redistest.Check(t, !strings.Contains(out, "!"), "a lease that is kept is said to hang:\n%s", out)
	if out = ok(t, url, "1h00m", "show", "--mutex", "busy", "--key", "a"); strings.Contains(out, "!") || strings.Contains(out, "usually") {
		t.Errorf("a lease that is kept is said to hang, or its time to be usual:\n%s", out)
	}
}
