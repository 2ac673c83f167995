package quorum

import (
	"context"
	"errors"
	"net"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/internal/tests/harness"
	"github.com/leasehold-go/leasehold/multi"
	"github.com/leasehold-go/leasehold/mutex"
)

func TestInspectGoesByTheMajority(t *testing.T) {
	each(t, 5, func(f *fleet) {
		a, b := f.open(func(c *mutex.Config) { c.Label = "first" }), f.open(func(c *mutex.Config) { c.Label = "second" })
		state, err := a.Inspect(f.Context(), "k")
		redistest.Check(f, err == nil && !state.Held && state.Holder == nil && state.Waiting == 0, "a free lock: %+v, %v", state, err)
		l := f.lock(a, "k")
		ctx, cancel := context.WithCancel(context.Background())
		waiter := f.locking(ctx, b, "k")
		f.waiting(a, "k", 1)
		state, err = b.Inspect(f.Context(), "k")
		redistest.CheckNow(f, err == nil && state.Held && state.Holder.ID == l.ID() && state.Holder.Label == "first" && state.LastToken == l.Token(),
			"a held lock: %+v, %v", state, err)
		w := state.Waiters
		redistest.Check(f, len(w) == 1 && w[0].Label == "second" && w[0].Position == 1, "its waiters: %+v", w)
		left := state.Holder.ExpiresIn
		redistest.Check(f, left > 0 && left <= 30*time.Second, "it expires in %v", left)
		busy := new(leasehold.BusyError)
		_, err = b.TryLock(f.Context(), "k")
		redistest.Check(f, errors.Is(err, leasehold.ErrBusy) && errors.As(err, &busy) && busy.InUse == 1, "TryLock of a held lock: %v", err)
		cancel()
		redistest.WantErr(f, waiter.Failed(), context.Canceled)
		f.waiting(a, "k", 0)
		f.unlock(l)
	})
}

func TestRevoke(t *testing.T) {
	each(t, 3, func(f *fleet) {
		a, b := f.open(), f.open()
		l := f.lock(a, "k")
		next := f.locking(f.Context(), b, "k")
		f.waiting(a, "k", 1)
		redistest.WantErr(f, b.Revoke(f.Context(), "k", l.ID(), "a test"))
		redistest.Expect(f, b.Revoke(f.Context(), "k", l.ID(), "a test"), nil, "a second time: %v")
		l2 := next.Got()
		redistest.Get(f, "the end of the holder's Context", l.Context().Done()) // it hears of it by itself
		redistest.WantErr(f, context.Cause(l.Context()), leasehold.ErrRevoked)
		redistest.WantErr(f, l.Unlock(), leasehold.ErrRevoked, redistest.Says("a test"))
		redistest.Check(f, l2.Token() > l.Token(), "token %d after %d", l2.Token(), l.Token())
		waiting := f.locking(f.Context(), a, "k")
		f.waiting(a, "k", 1)
		state := redistest.Must(a.Inspect(f.Context(), "k"))(f)
		redistest.WantErr(f, a.Revoke(f.Context(), "k", state.Waiters[0].ID, "not you"))
		redistest.WantErr(f, waiting.Failed(), leasehold.ErrRevoked)
		redistest.WantErr(f, a.Revoke(f.Context(), "k", "AAAAAAAA-1", "nobody"), leasehold.ErrNoLease)
		f.unlock(l2)
	})
}

// hooked returns a fleet of embedded servers, and a handle whose clients have a hook.
func hooked(t *testing.T, hook redistest.Around) (*fleet, *mutex.Mutex) {
	f := embedded(t, 3)
	clients := f.clients()
	for _, rdb := range clients {
		rdb.AddHook(hook)
	}
	m := redistest.Must(mutex.NewQuorum(clients, mutex.Config{Name: f.family}))(f)
	t.Cleanup(func() { redistest.WantErr(t, m.Close(context.Background())) })
	return f, m
}

// A reply that no script gives ends no process.
func TestRevokeWhoseRepliesAreGarbled(t *testing.T) {
	t.Parallel()
	f, operator := hooked(t, func(_ context.Context, cmds []redis.Cmder, send func() error) error {
		err := send()
		for _, cmd := range cmds {
			if reply, ok := cmd.(interface{ SetVal([]int64) }); ok && harness.CommandName(cmd) == "quorum revoke" {
				reply.SetVal([]int64{7, 0})
			}
		}
		return err
	})
	l := f.lock(f.open(), "k")
	ctx, cancel := context.WithTimeout(f.Context(), time.Second)
	defer cancel()
	redistest.WantErr(f, operator.Revoke(ctx, "k", l.ID(), "a test"), leasehold.ErrUnavailable)
	_ = l.Unlock()
}

func TestExtend(t *testing.T) {
	each(t, 3, func(f *fleet) {
		m := f.open(ttl(3*time.Second), func(c *mutex.Config) { c.MaxHold = time.Minute })
		l := f.lock(m, "k")
		time.Sleep(300 * time.Millisecond)
		before := l.Deadline()
		redistest.WantErr(f, l.Extend(f.Context(), 3*time.Second))
		redistest.AtLeast(f, l.Deadline().Sub(before), 100*time.Millisecond, "Extend moved the deadline by %v")
		err := l.Extend(f.Context(), 4*time.Second)
		redistest.Check(f, errors.Is(err, leasehold.ErrInvalid) && strings.Contains(err.Error(), "at most 3s"), "an Extend beyond the TTL: %v", err)
		f.unlock(l)

		short := f.lock(f.open(ttl(3*time.Second), func(c *mutex.Config) { c.MaxHold = time.Second }), "short")
		redistest.WantErr(f, short.Extend(f.Context(), 3*time.Second)) // of which MaxHold leaves a second
		f.unlock(short)
	})
}

func TestMaxWaitersAndMaxWait(t *testing.T) {
	each(t, 3, func(f *fleet) {
		m := f.open(func(c *mutex.Config) { c.MaxWaiters, c.MaxWait = 1, 2*time.Second })
		l := f.lock(m, "k")
		waiter := f.locking(f.Context(), m, "k")
		f.waiting(m, "k", 1)
		redistest.WantErr(f, redistest.ErrorOf(m.Lock(f.Context(), "k")), leasehold.ErrQueueFull)
		redistest.WantErr(f, waiter.Failed(), leasehold.ErrBusy, redistest.Not(leasehold.ErrUnavailable))
		f.unlock(l)
	})
}

// The look of a DoOnce is also a call that learns whether a majority answers: the Observer is told, and the next call fails at once.
func TestLooksLearnOfAnOutage(t *testing.T) {
	harness.Bubble(t, "quorum", func(f *harness.Fixture) {
		var hangs atomic.Bool
		rdbs := distant(f, 0)
		for _, rdb := range rdbs {
			rdb.AddHook(redistest.Around(func(_ context.Context, _ []redis.Cmder, send func() error) error {
				if hangs.Load() {
					time.Sleep(3 * time.Second)
					return &net.OpError{Op: "read", Err: os.ErrDeadlineExceeded}
				}
				return send()
			}))
		}
		told := new(harness.Told)
		m := redistest.Must(mutex.NewQuorum(rdbs, mutex.Config{Name: f.Family, Observer: told}))(f)
		look := func() error {
			return redistest.ErrorOf(m.TryDoOnce(f.Context(), "job", "1", time.Minute, func(context.Context, uint64) error { return nil }))
		}
		redistest.WantErr(f, look())
		time.Sleep(time.Minute)
		hangs.Store(true)
		redistest.WantErr(f, look(), leasehold.ErrUnavailable)
		redistest.Expect(f, told.Count(leasehold.EventUnavailable, ""), 1, "the Observer is told of %d outages")
		began := time.Now()
		redistest.WantErr(f, look(), leasehold.ErrUnavailable)
		redistest.WantErr(f, redistest.ErrorOf(m.Inspect(f.Context(), "job")), leasehold.ErrUnavailable)
		redistest.AtMost(f, time.Since(began), 200*time.Millisecond, "two calls beside servers that are known to be away took %v")
		hangs.Store(false)
		time.Sleep(5 * time.Second)
		redistest.WantErr(f, look())
		redistest.Expect(f, told.Count(leasehold.EventAvailable, ""), 1, "the Observer is told of %d returns")
		redistest.WantErr(f, m.Close(f.Context()))
	})
}

// A first call beside servers that are silent ends with an outage. Its error does not match the deadline of a ctx: the
// caller's has none.
func TestSilenceIsNoDeadlineOfTheCaller(t *testing.T) {
	harness.Bubble(t, "quorum", func(f *harness.Fixture) {
		rdbs := distant(f, 0)
		for _, rdb := range rdbs {
			rdb.AddHook(redistest.Around(func(context.Context, []redis.Cmder, func() error) error {
				time.Sleep(5 * time.Second)
				return &net.OpError{Op: "read", Err: os.ErrDeadlineExceeded}
			}))
		}
		m := redistest.Must(mutex.NewQuorum(rdbs, mutex.Config{Name: f.Family}))(f)
		err := redistest.ErrorOf(m.TryLock(context.Background(), "k"))
		redistest.WantErr(f, err, leasehold.ErrUnavailable, redistest.Not(context.DeadlineExceeded))
		redistest.WantErr(f, m.Close(f.Context()))
	})
}

func TestLeadAndShutdown(t *testing.T) {
	each(t, 3, func(f *fleet) {
		a, b := f.open(), f.open()
		ctx, cancel := context.WithCancel(context.Background())
		led := make(chan string, 2)
		lead := func(m *mutex.Mutex, name string) *harness.Call[struct{}] {
			return harness.Begin(f, func() error {
				return m.Lead(ctx, "leader", func(ctx context.Context, _ uint64) error {
					led <- name
					<-ctx.Done()
					return nil
				})
			})
		}
		doneA := lead(a, "a")
		<-led
		doneB := lead(b, "b")
		f.waiting(a, "leader", 1)
		redistest.WantErr(f, a.Close(f.Context()))
		redistest.WantErr(f, doneA.Failed(), leasehold.ErrClosed)
		redistest.Expect(f, <-led, "b", "%s leads")
		cancel()
		redistest.WantErr(f, doneB.Failed(), context.Canceled)
		redistest.WantErr(f, b.Shutdown(f.Context()))
		redistest.WantErr(f, redistest.ErrorOf(b.Lock(f.Context(), "k")), leasehold.ErrClosed)
	})
}

func TestWhatNewQuorumRefuses(t *testing.T) {
	type tagged struct {
		redis.UniversalClient
		tags []string
	}
	each(t, 3, func(f *fleet) {
		all := f.clients()
		var wrapped []redis.UniversalClient // their type can be compared, and they cannot
		for _, rdb := range all {
			wrapped = append(wrapped, struct{ redis.UniversalClient }{tagged{rdb, nil}})
		}
		cluster := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{f.addr(0)}})
		ring := redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"a": f.addr(0)}})
		defer cluster.Close()
		defer ring.Close()
		type refused struct {
			rdbs []redis.UniversalClient
			cfg  mutex.Config
			want []string
		}
		rows := map[string]refused{
			"none":               {nil, mutex.Config{}, []string{"rdbs has 0 clients; want those of 3, 5, 7 or 9 servers"}},
			"two":                {all[:2], mutex.Config{}, []string{"rdbs has 2 clients; want those of 3, 5, 7 or 9 servers"}},
			"four":               {append(f.clients(), all[0]), mutex.Config{}, []string{"rdbs has 4 clients"}},
			"nil":                {[]redis.UniversalClient{all[0], nil, all[2]}, mutex.Config{}, []string{"rdbs[1] ", "nil"}},
			"a client twice":     {[]redis.UniversalClient{all[0], all[1], all[0]}, mutex.Config{}, []string{"rdbs[2] is the client rdbs[0] again"}},
			"a Cluster":          {[]redis.UniversalClient{all[0], cluster, all[2]}, mutex.Config{}, []string{"rdbs[1] is a *redis.ClusterClient", "want the client of one server"}},
			"a Ring":             {[]redis.UniversalClient{all[0], all[1], ring}, mutex.Config{}, []string{"rdbs[2] ", "Ring"}},
			"a field":            {wrapped, mutex.Config{LocalFor: 5 * time.Millisecond}, []string{"LocalFor is 5ms; want 0"}},
			"several bad fields": {all, mutex.Config{LocalFor: 5 * time.Millisecond, KeepFor: time.Second, Replicas: 1, TTL: 1}, []string{"LocalFor is 5ms; want 0", "KeepFor is 1s; want 0", "Replicas is 1; want 0", "TTL is 1ns"}},
		}
		if f.reals != nil { // the embedded ones have no names; else two clients of one server would be two votes of one
			rows["a server twice"] = refused{append(f.clients()[:2], f.direct(0)), mutex.Config{}, []string{"rdbs[2] is the same server as rdbs[0]"}}
		}
		for name, c := range rows {
			c.cfg.Name = f.family
			m, err := mutex.NewQuorum(c.rdbs, c.cfg)
			redistest.Check(f, m == nil, "%s: there is a handle", name)
			redistest.WantErr(f, err, leasehold.ErrInvalid, redistest.Says(c.want...))
		}
	})
}

// No pipeline takes a lock of several servers together with others.
func TestMultiRefusesAQuorum(t *testing.T) {
	each(t, 3, func(f *fleet) {
		m := f.open()
		single := redistest.Must(mutex.New(f.direct(0), mutex.Config{Name: f.family}))(f)
		items := []multi.Item{multi.Lock(single, "a"), multi.Lock(m, "b")}
		for _, take := range []func(context.Context, ...multi.Item) (*multi.Lease, error){multi.Acquire, multi.TryAcquire} {
			redistest.WantErr(f, redistest.ErrorOf(take(f.Context(), items...)), leasehold.ErrInvalid, redistest.Says(f.family+"/b", "decided by several servers"))
		}
		for _, free := range []func() (*mutex.Lock, error){
			func() (*mutex.Lock, error) { return single.TryLock(f.Context(), "a") },
			func() (*mutex.Lock, error) { return m.Lock(f.Context(), "b") },
		} {
			f.unlock(redistest.Must(free())(f))
		}
		redistest.NoError(f, single.Close(f.Context()))
	})
}

// A server that did not answer when the handle was made is recognised before its vote counts.
func TestTheSameServerTwiceLater(t *testing.T) {
	newest(t, 3, func(f *fleet) {
		f.begin(f.open())
		f.proxies[2].SetUpstream(f.addr(0))
		f.refuse(2, true)
		m := redistest.Must(mutex.NewQuorum(f.clients(), mutex.Config{Name: f.family}))(f)
		f.refuse(2, false)
		f.reals[1].Kill()
		l, err := m.Lock(f.Context(), "k")
		redistest.Check(f, err != nil, "a lock with two votes of one server: %v", l)
		redistest.WantErr(f, m.Close(f.Context()))
	})
}
