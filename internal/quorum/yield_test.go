package quorum

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold/internal/call"
	"github.com/leasehold-go/leasehold/internal/redistest"
)

// A yield may take longer than the next call to the same server, such as one that heals the vote of a holder. The vote
// that the second call gets may still be given away, so it does not count before the yield is void.
func TestYieldThatIsUnderWayMayStillGiveTheVoteAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, v := t.Context(), aVoter(t)
		for i, part := range []string{"holders", "queue", "alive", "fence", "born"} {
			v.res.keys[i] = "p:qmx:{f:k}:" + part
		}
		_, connect := redistest.Bubble(t)
		s, rdb := v.f.servers[0], connect()
		s.rdb, s.client, s.run = rdb, redistest.Must(call.NewClient(rdb))(t), "embedded"
		redistest.NoError(t, rdb.HSet(ctx, v.res.keys[4].(string), "run", s.run, "birth", 1, "fresh", 0, "votes", 1).Err())
		redistest.Must(s.client.Time(ctx, v.res.FirstKey()))(t)
		v.member = "handle.1.1.10000.1.2.1"
		v.decide(func(t *todo) { v.ask(0, t) })
		synctest.Wait()
		void := int64(0)
		earlier := v.res.call(enterScript, "other.1.1.10000.1.1.1", 0, &void, 10_000, "wait", 0, 0, 0).WithText()
		redistest.Must(s.client.Do(ctx, earlier))(t)

		late := make(chan struct{})
		rdb.AddHook(redistest.Around(func(_ context.Context, cmds []redis.Cmder, send func() error) error {
			if call.ScriptName(cmds[0].Args()[1].(string)) == "quorum yield" {
				<-late
			}
			return send()
		}))
		v.decide(func(t *todo) { v.yield(0, t) })
		synctest.Wait()
		counts := func() bool {
			v.decide(func(t *todo) {
				v.phase = holding
				for i := range v.seats[1:] {
					v.seats[1+i] = seat{stand: held, until: time.Now().Add(v.terms.TTL)}
				}
				v.heal(0, v.terms.TTL, t)
			})
			synctest.Wait()
			v.mu.Lock()
			defer v.mu.Unlock()
			return v.seats[0].stand == held
		}
		redistest.Check(t, !counts(), "a vote counts though a yield that is under way may give it away")
		time.Sleep(yieldVoidAfter)
		redistest.Check(t, counts(), "the vote does not count though the yield is void")
		close(late)
		synctest.Wait()
		has := rdb.ZRange(ctx, v.res.FirstKey(), 0, -1).Val()
		redistest.Check(t, len(has) == 1 && has[0] == v.member, "%v has the vote", has)
	})
}
