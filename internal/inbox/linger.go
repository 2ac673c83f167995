package inbox

import (
	"sync"
	"time"
)

// A lingerTimer ends something a moment after its last use. The lock of its owner guards it.
type lingerTimer struct {
	timer *time.Timer // nil: not running
}

// start makes end run after the time linger, with the lock mu, unless stop is called before.
// Called with mu.
func (t *lingerTimer) start(mu *sync.Mutex, end func()) {
	var timer *time.Timer
	timer = time.AfterFunc(linger, func() {
		mu.Lock()
		defer mu.Unlock()
		if t.timer == timer { // otherwise stop was called while this goroutine waited for mu
			end()
		}
	})
	t.timer = timer
}

// stop stops the timer, if it runs. Called with the lock.
func (t *lingerTimer) stop() {
	if t.timer != nil {
		t.timer.Stop()
		t.timer = nil
	}
}
