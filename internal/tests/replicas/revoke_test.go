package replicas

import (
	"crypto/sha1"
	"encoding/hex"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/internal/tests/harness"
	"github.com/leasehold-go/leasehold/luascripts"
	"github.com/leasehold-go/leasehold/mutex"
)

// A grant that came by a message is revoked before replicas have confirmed it. Its waiter
// is told, and does not enter again.
func TestRevokedBeforeItIsConfirmed(t *testing.T) {
	x := redistest.StartReplicated(t, redistest.Newest(t), 1)
	p := redistest.NewProxy(t, x.Primary.Addr())
	cfg := mutex.Config{Name: redistest.Name(t), Replicas: 1, ReplicaWait: 2 * time.Second}
	a := redistest.Must(mutex.New(p.Client(), cfg))(t)
	defer harness.CloseWithin(t, 10*time.Second, a)
	b := redistest.Must(mutex.New(x.Primary.Client(), cfg))(t)
	defer harness.CloseWithin(t, 10*time.Second, b)
	held := redistest.Must(b.Lock(t.Context(), "k"))(t)
	waiter := make(chan error, 1)
	go func() {
		l, err := a.Lock(t.Context(), "k")
		if err == nil {
			_ = l.Unlock()
		}
		waiter <- err
	}()
	redistest.Eventually(t, "a waiter", func() bool {
		state, err := b.Inspect(t.Context(), "k")
		return err == nil && state.Waiting == 1
	})
	sum := sha1.Sum([]byte(luascripts.PermitsRenew()))
	renew := hex.EncodeToString(sum[:])
	confirming := p.HoldRequest(func(cmd []string) bool { return cmd[0] == "EVALSHA" && cmd[1] == renew }, 1)
	redistest.WantErr(t, held.Unlock())
	confirming.Wait()
	state, err := b.Inspect(t.Context(), "k")
	redistest.CheckNow(t, err == nil && state.Holder != nil, "%+v, %v; want a holder", state, err)
	redistest.WantErr(t, b.Revoke(t.Context(), "k", state.Holder.ID, "a test"))
	confirming.Release()
	redistest.WantErr(t, redistest.Get(t, "the waiter", waiter), leasehold.ErrRevoked)
}
