package rivercap

import (
	"errors"
	"sync"
	"time"

	"github.com/leasehold-go/leasehold"
)

// minStep is the shortest time between two refused jobs that come back.
const minStep = time.Millisecond

// sweepAt is the number of lines from which on those that are over are looked for.
const sweepAt = 1024

// lines knows for each key how many jobs wait in this process, and when the refused ones come
// back. The zero value is ready.
type lines struct {
	mu    sync.Mutex
	byKey map[string]*line
	sweep int // the number of lines at which to sweep
}

// The refused jobs of a line come back one after the other. They are counted, and their speed is the last one known:
// a speed that was guessed before the first job was done delays only the jobs that were refused meanwhile.
type line struct {
	waiting int
	refused float64       // jobs that were to come back at the time at
	at      time.Time     // when a job was refused last
	step    time.Duration // between two that come back; 0: not known yet
}

// ahead returns how many refused jobs are still to come back.
func (l *line) ahead(now time.Time) float64 {
	return max(0, l.refused-float64(now.Sub(l.at))/float64(max(l.step, minStep)))
}

// over reports whether nothing is known any more that matters.
func (l *line) over(now time.Time) bool { return l.waiting == 0 && l.ahead(now) == 0 }

// join counts a job of key in, and returns the number of those that wait now.
func (ls *lines) join(key string) int {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	l := ls.of(key)
	l.waiting++
	return l.waiting
}

// leave counts a job of key out.
func (ls *lines) leave(key string) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	l := ls.byKey[key] // it is there: a line with waiting jobs is not swept
	l.waiting--
	if l.over(time.Now()) {
		delete(ls.byKey, key)
	}
}

// delay returns how long a job of key that was refused with err is snoozed. The refused jobs are spread, each behind
// the last: if all came back after the same time, all but a few would be refused again. They come back at twice the
// speed at which the key's jobs are done, so that there are always some that wait.
func (ls *lines) delay(key string, err error) time.Duration {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	now := time.Now()
	l := ls.of(key)
	l.refused, l.at = l.ahead(now)+1, now
	switch busy, ok := errors.AsType[*leasehold.BusyError](err); {
	case ok:
		l.step = max(busy.RetryAfter/time.Duration(2*(busy.Waiting+1)), minStep)
	case l.step == 0: // its grant came just after its wait
		l.step = time.Second
	}
	return time.Duration(l.refused * float64(l.step))
}

// of returns the line of key, a new one if need be. Called with the lock.
func (ls *lines) of(key string) *line {
	if l, ok := ls.byKey[key]; ok {
		return l
	}
	if ls.byKey == nil {
		ls.byKey, ls.sweep = make(map[string]*line), sweepAt
	}
	if len(ls.byKey) >= ls.sweep {
		now := time.Now()
		for key, l := range ls.byKey {
			if l.over(now) {
				delete(ls.byKey, key)
			}
		}
		ls.sweep = max(sweepAt, 2*len(ls.byKey)) // so that a sweep is paid by as many new lines
	}
	l := new(line)
	ls.byKey[key] = l
	return l
}
