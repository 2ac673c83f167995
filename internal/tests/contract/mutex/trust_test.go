package mutex

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/internal/tests/harness"
	"github.com/leasehold-go/leasehold/mutex"
)

// What anybody checks first before they trust a lock.

// Releases by a process that is not, or no longer, the owner change nothing.
func TestNonOwnersReleaseChangesNothing(t *testing.T) {
	each(t, func(f *fixture) {
		m, wire := f.open(ttl(time.Second))
		other, _ := f.open()
		released := f.take(other, "k")
		unlock(f, released)
		expired := f.take(m, "k")
		wire.Cut()
		redistest.Get(f, "the loss", expired.Context().Done())
		redistest.Eventually(f, "the expiry", func() bool { return len(f.Held("k")) == 0 })
		wire.Heal()
		owner := f.take(other, "k")
		before, fence := fmt.Sprint(f.Held("k")), f.fence("k")
		redistest.WantErr(f, released.Unlock(), leasehold.ErrReleased, redistest.Says("leasehold: mutex: unlock "+f.Family+"/k: "))
		redistest.WantErr(f, expired.Unlock(), leasehold.ErrLost)
		harness.Close(f, m) // until what it gives back in the background is given back
		after := fmt.Sprint(f.Held("k"))
		redistest.CheckNow(f, after == before && f.fence("k") == fence, "held as %s, before as %s; fence %d, before %d", after, before, f.fence("k"), fence)
		unlock(f, owner)
	})
}

// rising locks again and again with several handles, and lets disturb do
// something between. Each token is above all before, and above the stored one.
func rising(f *fixture, disturb ...func()) {
	f.Helper()
	a, _ := f.open()
	b, _ := f.open()
	last := uint64(0)
	for i, d := range append(disturb, func() {}) {
		for _, m := range []*mutex.Mutex{a, b, a} {
			last = max(last, f.fence("k")) // which may be a disturbance, too
			var l *mutex.Lock
			redistest.Eventually(f, "a lock", func() (ok bool) {
				var err error
				l, err = m.TryLock(context.Background(), "k")
				return err == nil
			})
			redistest.CheckNow(f, l.Token() > last && l.Token() < 1<<53, "after disturbance %d: token %d, before %d", i, l.Token(), last)
			last = l.Token()
			redistest.WantErr(f, l.Unlock())
		}
		d()
	}
}

func TestTokensRiseAcrossFlushAndRestart(t *testing.T) {
	t.Parallel()
	for _, v := range redistest.NeedServers(t) {
		t.Run(v.Name, func(t *testing.T) {
			t.Parallel()
			server := redistest.StartServer(t, v)
			f := &fixture{harness.NewOn(t, harness.Locks, server.Client())}
			f.Connect = func(*harness.Wire) redis.UniversalClient { return server.Client() }
			flush := func() { f.RDB.FlushAll(context.Background()) }
			rising(f, flush, server.Restart, flush, server.Restart)
		})
	}
}

func init() {
	// writer locks a key, writes under it, and again when it is told to; it says
	// what came of that.
	redistest.RegisterChild("writer", func(args []string) int {
		name, addrs, cluster := args[0], strings.Split(args[1], ","), args[2] == "cluster"
		rdb := redis.NewUniversalClient(&redis.UniversalOptions{Addrs: addrs, IsClusterMode: cluster})
		m, err := mutex.New(rdb, mutex.Config{Name: name, TTL: time.Second})
		if err != nil {
			fmt.Println("error", err)
			return 1
		}
		l, err := m.Lock(context.Background(), "k")
		if err != nil {
			fmt.Println("error", err)
			return 1
		}
		guard, err := mutex.NewGuard(rdb, mutex.GuardConfig{Name: name})
		if err != nil {
			fmt.Println("error", err)
			return 1
		}
		fmt.Println("locked", l.Token(), guard.Set(context.Background(), "k", l.Token(), "first", time.Minute))
		for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
			err := guard.Set(context.Background(), "k", l.Token(), "stale", time.Minute)
			fmt.Println("wrote", errors.Is(err, leasehold.ErrFenced), l.Context().Err() != nil)
		}
		return 0
	})
}

// The whole story: a process locks, writes, and stops for longer than its lease.
// Another one locks and writes. The first wakes up and writes on.
func TestStoppedProcessIsFenced(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, target redistest.Target) {
		t.Parallel()
		f := newFixture(t, target)
		addr, kind := f.Addr, "single"
		if target.Kind == redistest.KindCluster {
			addr, kind = strings.Join(target.Cluster.Addrs(), ","), "cluster"
		}
		child := redistest.StartChild(t, "writer", f.Family, addr, kind)
		var token uint64
		var refused string
		if said := child.Expect("locked"); !strings.HasSuffix(said, "<nil>") {
			t.Fatalf("the child says %q", said)
		} else if _, err := fmt.Sscan(said, &token, &refused); err != nil {
			t.Fatal(err)
		}
		m, _ := f.open()
		guard := newGuard(f, f.RDB, f.Family)
		w := f.wait(t.Context(), m, "k")
		child.Pause()
		l := w.Got()
		redistest.CheckNow(t, l.Token() > token, "token %d after %d", l.Token(), token)
		redistest.WantErr(t, guard.Set(t.Context(), "k", l.Token(), "second", time.Minute))
		child.Resume()
		child.Send("write")
		if said := child.Expect("wrote"); said != "true true" && said != "true false" {
			t.Fatalf("fenced, and told of the loss: %s", said)
		}
		if v, _, err := guard.Get(t.Context(), "k"); err != nil || v != "second" {
			t.Fatalf("the value is %q, %v", v, err)
		}
		unlock(t, l)
	})
}
