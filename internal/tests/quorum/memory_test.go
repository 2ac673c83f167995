package quorum

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/mutex"
)

// must is lock by a deadline: it fails if the lock is not there in time.
func (f *fleet) lockWithin(m *mutex.Mutex, key string, within time.Duration) *mutex.Lock {
	f.Helper()
	began := time.Now()
	l := f.lock(m, key)
	redistest.AtMost(f, time.Since(began), within, "a lock took %v")
	return l
}

// A server that restarts empty while the lock is held would vote again, for another, and make a
// second majority with a server that has never voted for the holder.
func TestAnEmptyServerAbstains(t *testing.T) {
	forgets(t, func(f *fleet) { f.restartEmpty(1) })
}

// So would one that restarts with a snapshot of a time before the lock.
func TestAServerWithAnOldSnapshotAbstains(t *testing.T) {
	forgets(t, func(f *fleet) {
		f.reals[1].Kill()
		f.reals[1].Restart()
		redistest.Require(f, f.direct(1).Exists(context.Background(), f.born()).Val(), 1, "the snapshot is not there")
	})
}

func TestAFlushedServerAbstains(t *testing.T) {
	forgets(t, func(f *fleet) { f.direct(1).FlushAll(context.Background()) })
}

func forgets(t *testing.T, forget func(f *fleet)) {
	newest(t, 3, func(f *fleet) {
		const term = 2 * time.Second
		a, b := f.open(ttl(term)), f.open(ttl(term))
		f.begin(a)
		f.begin(b)
		redistest.WantErr(f, f.direct(1).Save(context.Background()).Err())
		f.proxies[2].Refuse(true)
		f.proxies[2].CloseAll()
		l := f.lock(a, "k") // with the votes of 0 and 1
		forget(f)
		forgot := time.Now()
		f.proxies[2].Refuse(false) // it has never heard of this lock
		l2, err := b.TryLock(f.Context(), "k")
		if err == nil {
			f.Errorf("a second holder, with token %d, beside %d, which lasts for another %v", l2.Token(), l.Token(), time.Until(l.Deadline()))
			_ = l2.Unlock()
		} else if !errors.Is(err, leasehold.ErrUnavailable) && !errors.Is(err, leasehold.ErrBusy) {
			f.Errorf("TryLock: %v", err)
		}
		f.unlock(l)
		next := f.lock(b, "k")
		f.Logf("the next lock came after %v", time.Since(forgot))
		redistest.Check(f, next.Token() > l.Token(), "token %d after %d", next.Token(), l.Token())
		f.unlock(next)
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
		f.proxies[2].Refuse(true)
		f.proxies[2].CloseAll()
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
