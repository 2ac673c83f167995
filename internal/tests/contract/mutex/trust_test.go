package mutex

import (
	"context"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/internal/tests/harness"
	"github.com/leasehold-go/leasehold/mutex"
)

// What anybody checks first before they trust a lock.

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
