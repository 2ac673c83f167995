package simulation

import (
	"fmt"
	"sync"
	"time"
)

// violation is a promise that was not kept: the first of a run.
type violation struct {
	rule string // which promise, to tell one violation from another
	at   time.Duration
	what string
}

func (v *violation) String() string { return fmt.Sprintf("%s at %v: %s", v.rule, v.at, v.what) }

// course is how a run goes.
type course struct {
	start  time.Time
	failed chan struct{}

	verdict   sync.Mutex // the innermost lock
	violation *violation
	tally     map[string]int
}

func newCourse() course {
	return course{start: time.Now(), failed: make(chan struct{}), tally: map[string]int{}}
}

// since is the time since the start of the run.
func (w *course) since(t time.Time) time.Duration { return t.Sub(w.start) }

// fail notes a violation. The first one ends the run.
func (w *course) fail(rule, format string, args ...any) {
	w.verdict.Lock()
	defer w.verdict.Unlock()
	if w.violation == nil {
		w.violation = &violation{rule, w.since(time.Now()), fmt.Sprintf(format, args...)}
		close(w.failed)
	}
}

// failIf notes a violation where there is one.
func (w *course) failIf(bad bool, rule, format string, args ...any) {
	if bad {
		w.fail(rule, format, args...)
	}
}

func (w *course) over() bool {
	select {
	case <-w.failed:
		return true
	default:
		return false
	}
}

func (w *course) note(what string) {
	w.verdict.Lock()
	defer w.verdict.Unlock()
	w.tally[what]++
}

// wait sleeps until a time of the run, or until the run has failed.
func (w *course) wait(at time.Duration) {
	select {
	case <-time.After(at - w.since(time.Now())):
	case <-w.failed:
	}
}
