package report

import (
	"sync"
	"time"
)

// A courier hands things to code of the user, an Observer or a Logger: one after the other, in
// the order in which they were put, on one goroutine that lives while there are any. That code
// may block, panic or end its goroutine. To put something takes no time, so it may be done
// under locks and by the goroutine that renews all leases of a handle.
type courier[T any] struct {
	hand func(T)
	// trouble is called on the courier's goroutine after hand has panicked, and after things
	// were dropped.
	trouble func(dropped int, panicked any)

	// Used by the goroutine alone.
	parcel *parcel[T]
	handed int // how many things of it

	mu      sync.Mutex
	next    *parcel[T] // for when the parcel is handed over; nil: nothing was put since
	running bool
	hangs   bool // a caller has waited in vain, and nothing was handed over since
	dropped int  // because the next parcel was full
}

// A parcel is what was put while the parcel before it was handed over.
type parcel[T any] struct {
	things []T
	done   chan struct{} // closed when all are handed over
}

const (
	// mostUndelivered is how many things wait for a courier. More are dropped, and counted.
	mostUndelivered = 4096
	// courierPatience is how long a call waits until what it has put is handed over.
	courierPatience = 100 * time.Millisecond
)

// put adds a thing. The channel that it returns is closed once the thing is handed over; it is
// nil if the thing was dropped.
func (c *courier[T]) put(thing T) (done <-chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.next == nil {
		c.next = &parcel[T]{done: make(chan struct{})}
	}
	if len(c.next.things) >= mostUndelivered {
		c.dropped++
		return nil
	}
	c.next.things = append(c.next.things, thing)
	if !c.running {
		c.running, c.hangs = true, false
		go c.run()
	}
	return c.next.done
}

// wait waits until done is closed, and reports whether it is. It waits for courierPatience at
// most, and not at all while the user's code is known to hang.
func (c *courier[T]) wait(done <-chan struct{}) bool {
	c.mu.Lock()
	hangs := c.hangs
	c.mu.Unlock()
	if done == nil || hangs {
		return false
	}
	timer := time.NewTimer(courierPatience)
	defer timer.Stop()
	select {
	case <-done:
		return true
	case <-timer.C:
		c.mu.Lock()
		defer c.mu.Unlock()
		c.hangs = true
		return false
	}
}

// flush waits, as wait does, until all that was put before is handed over.
func (c *courier[T]) flush() {
	c.mu.Lock()
	if c.next == nil && c.running {
		c.next = &parcel[T]{done: make(chan struct{})} // its end is the end of the one under way
	}
	next := c.next
	c.mu.Unlock()
	if next != nil {
		c.wait(next.done)
	}
}

func (c *courier[T]) run() {
	ended := true
	defer func() {
		if ended {
			go c.run() // the user's code has ended this goroutine; go on with the next thing
		}
	}()
	for c.parcel != nil || c.take() {
		for c.handed < len(c.parcel.things) {
			thing := c.parcel.things[c.handed]
			c.handed++
			c.guard(func() { c.hand(thing) })
			c.mu.Lock()
			c.hangs = false
			c.mu.Unlock()
		}
		close(c.parcel.done)
		c.parcel = nil
	}
	ended = false
}

// take takes the next parcel. If there is none, it returns false, and the goroutine ends
// without another look at c: put may have started the next one.
func (c *courier[T]) take() bool {
	c.mu.Lock()
	if c.next == nil {
		c.running = false
		c.mu.Unlock()
		return false
	}
	c.parcel, c.handed, c.next = c.next, 0, nil
	dropped := c.dropped
	c.dropped = 0
	c.mu.Unlock()
	if dropped > 0 {
		c.guard(func() { c.trouble(dropped, nil) })
	}
	return true
}

func (c *courier[T]) guard(fn func()) {
	defer func() {
		if p := recover(); p != nil {
			defer func() { _ = recover() }() // trouble is the user's code, too
			c.trouble(0, p)
		}
	}()
	fn()
}
