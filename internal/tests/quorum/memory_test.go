package quorum

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/internal/tests/harness"
	"github.com/leasehold-go/leasehold/mutex"
)

// lockWithin is lock that fails the test if the lock is not there in time.
func (f *fleet) lockWithin(m *mutex.Mutex, key string, within time.Duration) *mutex.Lock {
	f.Helper()
	began := time.Now()
	l := f.lock(m, key)
	redistest.AtMost(f, time.Since(began), within, "a lock took %v")
	return l
}

// A server that forgets while the lock is held would vote again, for another, and make a
// second majority with a server that has never voted for the holder.
func TestAServerThatForgetsAbstains(t *testing.T) {
	for how, forget := range map[string]func(f *fleet){
		"it restarts empty": func(f *fleet) { f.restartEmpty(1) },
		"it is flushed":     func(f *fleet) { f.direct(1).FlushAll(context.Background()) },
		"it restarts with a snapshot from before the lock": func(f *fleet) {
			f.reals[1].Kill()
			f.reals[1].Restart()
			redistest.Require(f, f.direct(1).Exists(context.Background(), f.born()).Val(), 1, "the snapshot is not there")
		},
	} {
		t.Run(how, func(t *testing.T) { newest(t, 3, func(f *fleet) { abstains(f, forget) }) })
	}
}

func abstains(f *fleet, forget func(f *fleet)) {
	const term = 4 * time.Second // until the renewal only server 0 knows of the lock: a restart must not take longer
	a, b := f.open(ttl(term)), f.open(ttl(term))
	f.begin(a)
	f.begin(b)
	redistest.WantErr(f, f.direct(1).Save(context.Background()).Err())
	f.refuse(2, true)
	l := f.lock(a, "k") // with the votes of 0 and 1
	forget(f)
	f.proxies[2].Refuse(false) // it has never heard of this lock
	_, err := b.TryLock(f.Context(), "k")
	redistest.CheckNow(f, errors.Is(err, leasehold.ErrUnavailable) || errors.Is(err, leasehold.ErrBusy), "a second holder beside the first: %v", err)
	f.unlock(l)
	next := f.lock(b, "k")
	redistest.Check(f, next.Token() > l.Token(), "token %d after %d", next.Token(), l.Token())
	f.unlock(next)
}

// It abstains for the TTL of the Configs also towards a handle with a MaxHold, the locks of which last no longer than
// that: those of other handles of the family do.
func TestAbstentionIsNoShorterWithAMaxHold(t *testing.T) {
	newest(t, 3, func(f *fleet) {
		const term = 6 * time.Second
		a, b := f.open(ttl(term)), f.open(ttl(term), func(c *mutex.Config) { c.MaxHold = 100 * time.Millisecond })
		f.begin(a)
		f.begin(b)
		l := f.lock(a, "k")
		f.direct(1).FlushAll(context.Background())
		for began := time.Now(); time.Since(began) < time.Second; time.Sleep(10 * time.Millisecond) {
			redistest.WantErr(f, redistest.ErrorOf(b.TryLock(f.Context(), "k")), leasehold.ErrBusy)
			redistest.CheckNow(f, !f.votes(1), "it votes again after %v", time.Since(began))
		}
		f.unlock(l)
	})
}

// A majority that restarts empty grants nothing for one TTL. Tokens still rise.
func TestAMajorityForgets(t *testing.T) {
	newest(t, 5, func(f *fleet) {
		const term = 2 * time.Second
		a := f.open(ttl(term))
		f.begin(a)
		l := f.lock(a, "k")
		f.unlock(l)
		for _, i := range []int{0, 2, 4} {
			f.restartEmpty(i)
		}
		forgot := time.Now()
		next := f.lock(a, "k")
		redistest.Between(f, time.Since(forgot), term-100*time.Millisecond, term+3*time.Second, "a majority had forgotten, and granted after %v")
		redistest.Check(f, next.Token() > l.Token(), "token %d after %d", next.Token(), l.Token())
		f.unlock(next)
	})
}

// If a majority has forgotten, the servers that remember may be the only ones that know the last
// token. So all must answer, however long ago the others forgot.
func TestAllMustAnswerIfAMajorityForgot(t *testing.T) {
	newest(t, 3, func(f *fleet) {
		const term = time.Second
		a := f.open(ttl(term))
		f.begin(a)
		l := f.lock(a, "k")
		f.unlock(l)
		f.refuse(2, true)
		f.restartEmpty(0)
		f.restartEmpty(1)
		for begin := time.Now(); time.Since(begin) < 3*term; {
			if l, err := a.TryLock(f.Context(), "k"); !errors.Is(err, leasehold.ErrUnavailable) {
				f.Fatalf("two servers that have forgotten decide after %v: %v, %v", time.Since(begin), l, err)
			}
		}
		f.proxies[2].Refuse(false)
		next := f.lockWithin(a, "k", 5*time.Second)
		redistest.Check(f, next.Token() > l.Token(), "token %d after %d", next.Token(), l.Token())
		f.unlock(next)
	})
}

// A server that has forgotten its fence votes again only with tokens above those that the others
// know, even where its clock is behind (here: the tokens are ahead).
func TestAFloorKeepsTokensRising(t *testing.T) {
	newest(t, 3, func(f *fleet) {
		const term = time.Second
		a := f.open(ttl(term))
		f.begin(a)
		ahead := uint64(time.Now().Add(time.Hour).UnixMicro())
		for i := range 3 { // as if a clock had been an hour ahead
			redistest.WantErr(f, f.direct(i).Set(f.Context(), f.part("k", "fence"), ahead, time.Hour).Err())
		}
		l := f.lock(a, "k")
		redistest.CheckNow(f, l.Token() > ahead, "token %d after %d", l.Token(), ahead)
		f.unlock(l)
		// One after the other forgets, and comes back by requests for another lock. In the end all
		// have forgotten the fence of this one.
		last := l.Token()
		for i := range 3 {
			f.restartEmpty(i)
			for deadline := time.Now().Add(20 * time.Second); !f.votes(i); {
				redistest.CheckNow(f, !time.Now().After(deadline), "server %d never votes again", i)
				f.unlock(f.lock(a, "another"))
			}
		}
		l = f.lock(a, "k")
		redistest.Check(f, l.Token() > last, "token %d after %d", l.Token(), last)
		f.unlock(l)
	})
}

// The first lock of a family needs all servers: one that is away may have voted before.
func TestAFamilyBeginsWithAllServers(t *testing.T) {
	newest(t, 3, func(f *fleet) {
		f.reals[1].Kill()
		a := f.open()
		l, err := a.Lock(f.Context(), "k")
		redistest.Check(f, errors.Is(err, leasehold.ErrUnavailable), "the family began without a server: %v, %v", l, err)
		f.reals[1].Restart()
		f.unlock(f.lockWithin(a, "k", 5*time.Second))
	})
}

// votedFor reports whether a server's vote belongs to a lock.
func (f *fleet) votedFor(i int, l *mutex.Lock) bool {
	members := f.direct(i).ZRange(context.Background(), f.part("k", "holders"), 0, -1).Val()
	return len(members) == 1 && strings.HasPrefix(members[0], l.ID()[:8])
}

// own returns the fleet as another process sees it, with proxies of its own.
func (f *fleet) own() *fleet {
	other := *f
	other.proxies = nil
	for i := range f.size() {
		other.proxies = append(other.proxies, redistest.NewProxy(f, f.addr(i)))
	}
	return &other
}

func (f *fleet) refuse(i int, refuse bool) {
	f.proxies[i].Refuse(refuse)
	if refuse {
		f.proxies[i].CloseAll()
	}
}

// A vote that a request has which never yields is asked for by each renewal.
func TestEachRenewalAsksForAVoteThatIsMissing(t *testing.T) {
	each(t, 3, func(f *fleet) {
		m := f.open(ttl(time.Second))
		l := f.lock(m, "k")
		f.listens(2, 1)
		holders := f.part("k", "holders")
		mine := f.direct(2).ZRange(f.Context(), holders, 0, -1).Val()
		redistest.CheckNow(f, len(mine) == 1, "the votes of a server: %v", mine)
		other := strings.Replace(mine[0], l.ID()[:8], "nobodyZZ", 1)
		until := time.Now().Add(1500 * time.Millisecond)
		f.direct(2).ZAdd(f.Context(), holders, redis.Z{Score: float64(until.UnixMilli()), Member: other})
		f.direct(2).PExpireAt(f.Context(), holders, until.Add(time.Minute))
		f.direct(2).ZRem(f.Context(), holders, mine[0])
		redistest.Eventually(f, "the vote that was missing", func() bool {
			f.direct(2).ZRemRangeByScore(f.Context(), holders, "-inf", fmt.Sprint(time.Now().UnixMilli()))
			return f.votedFor(2, l)
		})
		redistest.Check(f, !time.Now().Before(until), "the vote of another request was taken")
		f.unlock(l)
	})
}

// listens waits until n handles have subscribed to a server: after a subscription they ask for what is
// missing there, too.
func (f *fleet) listens(i, n int) {
	f.Helper()
	redistest.Eventually(f, "the handles to listen", func() bool {
		return len(f.direct(i).PubSubChannels(f.Context(), "leasehold:inbox:*").Val()) == n
	})
	time.Sleep(50 * time.Millisecond) // what the subscription asks for is over
}

// A waiter that came earlier may have the vote of a server that the holder did not need. It yields to the holder at
// once, and not only after the first renewal: else one more server that forgets would end the lock.
func TestAVoteThatAWaiterHasIsHealed(t *testing.T) {
	newest(t, 3, func(f *fleet) {
		slow := f.own()
		a, b := f.open(), slow.open()
		f.begin(a)
		f.begin(b)
		other := f.lock(a, "other") // keeps the subscription: after a new one, the holder asks anyway
		for i := range 3 {
			f.listens(i, 1)
		}
		time.Sleep(100 * time.Millisecond) // what the last subscription asks for is over
		for _, i := range []int{0, 1} {
			slow.proxies[i].Delay(300*time.Millisecond, 0)
		}
		votes := func(i int) int64 { return f.direct(i).ZCard(context.Background(), f.part("k", "holders")).Val() }
		for i, lock := range []func(context.Context, string) (*mutex.Lock, error){a.Lock, a.TryLock, a.Lock, a.TryLock} {
			redistest.Eventually(f, "the turn before to be over", func() bool { return votes(0)+votes(1)+votes(2) == 0 })
			slow.proxies[2].Delay(0, 0)
			next := f.turn(b, "k")
			redistest.Eventually(f, "the waiter to have a vote", func() bool { return votes(2) == 1 })
			if i < 2 { // the waiter subscribes only after the hint
				slow.proxies[2].Delay(300*time.Millisecond, 0)
			}
			before := redistest.Commandstats(f, f.direct(2))["evalsha"]
			l := redistest.Must(lock(f.Context(), "k"))(f)
			for asked := time.Now(); !f.votedFor(2, l); time.Sleep(time.Millisecond) {
				// The first renewal comes after 10 s.
				redistest.CheckNow(f, !redistest.Over(asked, 7*time.Second), "the waiter does not yield its vote")
			}
			calls := redistest.Commandstats(f, f.direct(2))["evalsha"] - before
			redistest.Check(f, calls < 50, "there were %d calls until the vote came", calls)
			f.unlock(l)
			next.Got()
		}
		f.unlock(other)
	})
}

// A vote that ended early, as by a clock that jumped, is asked for again by the renewal that finds
// that out, and not only by the next one.
func TestAVoteThatEndedEarlyIsHealed(t *testing.T) {
	harness.Bubble(t, "quorum", func(f *harness.Fixture) {
		const trip = 10 * time.Millisecond
		rdbs := distant(f, trip)
		m := redistest.Must(mutex.NewQuorum(rdbs, mutex.Config{Name: f.Family}))(f)
		l := redistest.Must(m.Lock(f.Context(), "k"))(f)
		time.Sleep(5 * trip) // it knows of its third vote
		votes := "leasehold:qmx:{" + f.Family + ":k}:holders"
		redistest.Require(f, rdbs[2].Del(f.Context(), votes).Val(), 1, "%d votes ended")
		redistest.WantErr(f, l.Extend(f.Context(), 20*time.Second)) // a renewal
		time.Sleep(2 * trip)
		redistest.Require(f, rdbs[2].ZCard(f.Context(), votes).Val(), 1, "%d votes after the renewal")
		redistest.WantErr(f, l.Unlock())
		redistest.WantErr(f, m.Close(f.Context()))
	})
}

// The first TryLock of a family has the time that its servers need to begin, however the round trips fall.
func TestAFamilyBeginsOverALongWay(t *testing.T) {
	for trip := 250 * time.Millisecond; trip <= 350*time.Millisecond; trip += 5 * time.Millisecond {
		t.Run(trip.String(), func(t *testing.T) {
			harness.Bubble(t, "quorum", func(f *harness.Fixture) {
				m := redistest.Must(mutex.NewQuorum(distant(f, trip), mutex.Config{Name: f.Family}))(f)
				redistest.WantErr(f, redistest.Must(m.TryLock(f.Context(), "k"))(f).Unlock())
				redistest.WantErr(f, m.Close(f.Context()))
			})
		})
	}
}
