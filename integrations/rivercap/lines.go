package rivercap

import (
	"errors"
	"sync"
	"time"

	"github.com/leasehold-go/leasehold"
)

// sweepAt is the number of lines from which on those that are over are looked for.
const sweepAt = 1024

// lines knows for each key how many jobs wait in this process, and when the refused ones come
// back. The zero value is ready.
type lines struct {
	mu    sync.Mutex
	byKey map[string]*line
	sweep int // the number of lines at which to sweep
}

type line struct {
	waiting int
	last    time.Time // when the job that was refused last comes back
}

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
	if l.waiting == 0 && time.Now().After(l.last) {
		delete(ls.byKey, key)
	}
}

// delay returns how long a job of key that was refused with err is snoozed. The refused jobs are spread, each behind
// the last: if all came back after the same time, all but a few would be refused again. They come back at twice the
// speed at which the key's jobs are done, so that there are always some that wait.
func (ls *lines) delay(key string, err error) time.Duration {
	step := time.Second
	var busy *leasehold.BusyError
	if errors.As(err, &busy) {
		step = busy.RetryAfter / time.Duration(2*(busy.Waiting+1))
	}
	step = max(step, time.Millisecond)
	ls.mu.Lock()
	defer ls.mu.Unlock()
	now := time.Now()
	l := ls.of(key)
	if l.last.Before(now) {
		l.last = now
	}
	l.last = l.last.Add(step)
	return l.last.Sub(now)
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
			if l.waiting == 0 && now.After(l.last) {
				delete(ls.byKey, key)
			}
		}
		ls.sweep = max(sweepAt, 2*len(ls.byKey)) // so that a sweep is paid by as many new lines
	}
	l := new(line)
	ls.byKey[key] = l
	return l
}
