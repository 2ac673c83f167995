package mutex

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/internal/tests/harness"
	"github.com/leasehold-go/leasehold/mutex"
)

// In all the places where Redis can answer with errors there is no busy loop, no
// wait without end, and the error is the one that was promised.

// few is more than several patient callers send in a quarter of a minute, and less than an impatient one in a second.
const few = 300

// Errors that may pass end calls and waits when their bounds are over. Those that stay end a call at once, or, where
// they might be of credentials that are being rotated, when its bound is over. All are named, and the holder is told.
func TestErrorsOfTheServer(t *testing.T) {
	for text, c := range map[string]struct {
		within time.Duration
		sent   int
	}{
		"LOADING Redis is loading the dataset in memory":                      {redistest.Soon, few},
		"OOM command not allowed when used memory > 'maxmemory'.":             {time.Second, 5},
		"NOPERM User default has no permissions to run the 'evalsha' command": {3 * time.Second, few},
		"NOAUTH Authentication required.":                                     {3 * time.Second, few},
		"WRONGPASS invalid username-password pair or user is disabled.":       {3 * time.Second, few},
	} {
		name, _, _ := strings.Cut(text, " ")
		t.Run(name, func(t *testing.T) {
			bubble(t, func(f *fixture) {
				holder, holding := f.open(ttl(time.Minute))
				m, wire := f.open()
				waiter, waits := f.open()
				l := f.take(holder, "held")
				unlock(f, f.take(m, "warm"))
				queued := f.wait(f.Context(), waiter, "held")
				time.Sleep(100 * time.Millisecond)          // until its answer has come
				f.Cleanup(func() { f.Server.SetError("") }) // before the handles are closed
				f.Server.SetError(text)
				failed, held, waited := time.Now(), holding.Sent(), waits.Sent()
				for _, op := range []string{"lock", "try lock"} {
					sent, began, within := wire.Sent(), time.Now(), c.within
					lock := m.Lock
					if op == "try lock" {
						lock, within = m.TryLock, time.Second
					}
					_, err := lock(f.Context(), "k")
					redistest.WantErr(f, err, leasehold.ErrUnavailable, redistest.Not(leasehold.ErrBusy), redistest.Says(name, "leasehold: mutex: "+op+" "+f.Family+"/k: "))
					redistest.AtMost(f, time.Since(began), within, "%s ended after %v", op)
					redistest.AtMost(f, wire.Sent()-sent, c.sent, "%s sent %d commands", op)
				}
				sent := wire.Sent()
				<-queued.Done
				redistest.WantErr(f, queued.Failed(), leasehold.ErrUnavailable)
				redistest.AtMost(f, time.Since(failed), 15*time.Second, "a wait that Redis does not answer ends after %v")
				redistest.AtMost(f, waits.Sent()-waited, few, "%d commands were sent by the waiter")
				<-l.Context().Done()
				redistest.WantErr(f, context.Cause(l.Context()), leasehold.ErrLost)
				redistest.AtMost(f, time.Since(failed), time.Minute, "the holder is told after %v")
				redistest.AtMost(f, holding.Sent()-held, 2*few, "%d commands were sent by the holder")
				// What may be left is given back for as long as a lease lasts, at leisure.
				time.Sleep(time.Minute - time.Since(failed))
				redistest.AtMost(f, wire.Sent()-sent, 2*few, "%d commands were sent in a minute")
				f.Server.SetError("")
				redistest.WantErr(f, l.Unlock(), leasehold.ErrLost)
				time.Sleep(time.Second)
				unlock(f, f.take(m, "held"))
			})
		})
	}
}

// theirs puts a list of another program in the place of a key, which stays checks, and takes away.
func (f *fixture) theirs(key, part string) (stays func()) {
	name := f.Part(key, part)
	redistest.Must(f.RDB.TxPipelined(f.Context(), func(pipe redis.Pipeliner) error { // at once, or a waiter finds it free
		pipe.Del(f.Context(), name)
		return pipe.RPush(f.Context(), name, "theirs").Err()
	}))(f)
	return func() {
		f.Helper()
		all, left := f.RDB.LRange(f.Context(), name, 0, -1).Val(), f.RDB.PTTL(f.Context(), name).Val()
		redistest.Check(f, slices.Equal(all, []string{"theirs"}) && left == -1, "%s now holds %q for %v", name, all, left)
		f.RDB.Del(f.Context(), name)
	}
}

// A key of a wrong type is told to all who need it, also to a waiter, and is left as it is.
func TestKeyOfAWrongType(t *testing.T) {
	each(t, func(f *fixture) {
		parts := []string{"holders", "queue", "alive", "fence"}
		for _, part := range parts {
			m, wire := f.open()
			key := "at-" + part
			stays := f.theirs(key, part)
			sent := wire.Sent()
			redistest.WantErr(f, redistest.ErrorOf(m.Lock(f.Context(), key)), leasehold.ErrUnavailable, redistest.Says("WRONGTYPE", f.Family+"/"+key))
			redistest.WantErr(f, redistest.ErrorOf(m.TryLock(f.Context(), key)), leasehold.ErrUnavailable)
			redistest.AtMost(f, wire.Sent()-sent, few, "%s: %d commands were sent", part)
			for _, other := range parts {
				n := f.RDB.Exists(f.Context(), f.Part(key, other)).Val()
				redistest.CheckNow(f, n == 0 || other == part, "with %s of a wrong type, %s was written", part, other)
			}
			stays()
		}
		holder, _ := f.open()
		m, wire := f.open()
		f.take(holder, "k")
		w := f.wait(f.Context(), m, "k")
		stays := f.theirs("k", "holders")
		sent := wire.Sent()
		redistest.WantErr(f, w.Failed(), leasehold.ErrUnavailable, redistest.Says("WRONGTYPE"))
		redistest.AtMost(f, wire.Sent()-sent, few, "%d commands were sent")
		stays()
	})
}

// The key of a lock that is held is deleted, and another process takes the lock, or it becomes one of a wrong type: the
// holder is told by a renewal, and its Unlock takes nothing from the other. If another key of the lock becomes one of a
// wrong type, the lock is kept and given back.
func TestKeyOfALockBecomesAnother(t *testing.T) {
	each(t, func(f *fixture) {
		for _, part := range []string{"holders", "deleted", "queue", "alive", "fence"} {
			m, _ := f.open(ttl(3 * time.Second))
			l := f.take(m, part)
			var stays func()
			if part == "deleted" {
				f.RDB.Del(f.Context(), f.Part(part, "holders"))
				other, _ := f.open()
				next := f.take(other, part)
				stays = func() { f.WantHeld(part, 1); unlock(f, next) }
			} else {
				stays = f.theirs(part, part)
			}
			before := l.Deadline()
			redistest.Eventually(f, "a renewal", func() bool { return l.Context().Err() != nil || l.Deadline().After(before) })
			cause, err := context.Cause(l.Context()), l.Unlock()
			if part == "holders" || part == "deleted" {
				redistest.WantErr(f, cause, leasehold.ErrLost)
				redistest.WantErr(f, err, leasehold.ErrLost)
				redistest.Check(f, part == "deleted" || strings.Contains(cause.Error(), "WRONGTYPE"), "the lock was lost: %v", cause)
			} else {
				redistest.Expect(f, cause, nil, "with a foreign %s the lock was lost: %v", part)
				if err != nil {
					redistest.WantErr(f, err, leasehold.ErrUnavailable, redistest.Says("WRONGTYPE"))
				}
				f.WantHeld(part, 0)
			}
			redistest.AtMost(f, time.Since(before), 0, "told %v after the deadline; a renewal comes long before")
			stays()
		}
	})
}

// A call without an answer is told of, though the try that followed it had not been sent
// when ctx ended: the lock may be held.
func TestCtxEndsBeforeTheNextTryIsSent(t *testing.T) {
	bubble(t, func(f *fixture) {
		for range 20 {
			m, wire := f.open()
			unlock(f, f.take(m, "k")) // the script is known
			var first sync.Once
			failed := make(chan struct{})
			wire.Fail(func(name string) (err error) {
				if name == "enter" {
					first.Do(func() { close(failed); err = io.ErrUnexpectedEOF })
				}
				return err
			})
			ctx, cancel := context.WithCancel(f.Context())
			waiter := f.start(ctx, m, "k")
			<-failed
			wire.Stall()
			var others sync.WaitGroup
			for i := range 8 { // as many round trips as may be under way
				others.Go(func() { _, _ = m.TryLock(ctx, strconv.Itoa(i)) })
			}
			time.Sleep(13 * time.Millisecond) // the next try waits for one of them to end
			cancel()
			<-waiter.Done
			redistest.WantErr(f, waiter.Err, context.Canceled, leasehold.ErrUnavailable)
			wire.Heal()
			others.Wait()
			harness.Close(f, m)
		}
	})
}

// A TryLock whose grant comes too late to be used says that Redis was too slow. It does not
// try again and say that the lock is held: its own first try would be the holder.
func TestTryLockWhoseGrantIsLateIsNotBusy(t *testing.T) {
	bubble(t, func(f *fixture) {
		m, wire := f.open(ttl(time.Second))
		unlock(f, f.take(m, "k")) // the script is known
		answer := wire.StallReplies("enter")
		try := harness.Start(f.T, func() (*mutex.Lock, error) { return m.TryLock(f.Context(), "k") })
		time.Sleep(time.Second - 5*time.Millisecond) // Redis still has the lock, and the process no longer
		f.WantHeld("k", 1)
		answer()
		redistest.WantErr(f, try.Failed(), leasehold.ErrUnavailable, redistest.Not(leasehold.ErrBusy)) // no word of another holder
		synctest.Wait()
		f.WantHeld("k", 0) // it was given back
	})
}

// What Redis no longer has, an Extend takes not back, whether somebody else has the key by then or not.
// The holder, which did not know yet, is told.
func TestExtendAfterTheEnd(t *testing.T) {
	some(t, func(f *fixture) {
		m, _ := f.open()
		other, _ := f.open()
		for taken := range 2 {
			key := fmt.Sprint("deleted-", taken)
			l := f.take(m, key)
			f.RDB.Del(f.Context(), f.Part(key, "holders"))
			if taken > 0 {
				f.take(other, key)
			}
			redistest.WantErr(f, l.Extend(f.Context(), time.Minute), leasehold.ErrLost)
			redistest.Get(f, "the loss", l.Context().Done())
			redistest.WantErr(f, l.Extend(f.Context(), time.Minute), leasehold.ErrLost)
			f.WantHeld(key, taken)
		}
	})
}

// The first reply to the release of a lock that was revoked is lost, and no hint has come: the
// repeated leave finds nothing, which is no proof that the first one gave the lock back.
func TestUnlockWhoseFirstReplyIsLostTellsOfARevocation(t *testing.T) {
	bubble(t, func(f *fixture) {
		m, w := f.open()
		operator, _ := f.open()
		l, kept := f.take(m, "k"), f.take(m, "kept")
		redistest.WantErr(f, operator.Revoke(f.Context(), "k", l.ID(), "a test"))
		for _, c := range []struct {
			l    *mutex.Lock
			want error
		}{{l, leasehold.ErrRevoked}, {kept, nil}} {
			w.Patience = 10 * time.Millisecond
			release := w.StallReplies("leave")
			time.AfterFunc(11*time.Millisecond, release)
			err := c.l.Unlock()
			redistest.Check(f, errors.Is(err, c.want), "Unlock of %s says %v; want %v", c.l.Key(), err, c.want)
			w.Heal()
		}
	})
}

// A waiter is revoked, and its signs of life are lost, which would say so: it gets no lock. It
// is told the reason once one is answered, and else that Redis is unavailable.
func TestRevokedWaiterWhoseAsksAreLostGetsNothing(t *testing.T) {
	bubble(t, func(f *fixture) {
		for lost, want := range map[time.Duration]error{time.Second: leasehold.ErrRevoked, time.Minute: leasehold.ErrUnavailable} {
			m, w := f.open()
			operator, _ := f.open()
			held := f.take(operator, "k")
			waiter := f.wait(f.Context(), m, "k")
			state := f.inspect(operator, "k")
			redistest.CheckNow(f, len(state.Waiters) == 1, "%+v", state)
			w.CutOff("ask")
			time.AfterFunc(lost, w.Heal)
			redistest.WantErr(f, operator.Revoke(f.Context(), "k", state.Waiters[0].ID, "a test"))
			time.AfterFunc(2*time.Second, func() { unlock(f, held) })
			<-waiter.Done
			redistest.Check(f, errors.Is(waiter.Err, want), "the revoked waiter ended with %v; want %v", waiter.Err, want)
			time.Sleep(time.Minute)
		}
	})
}
