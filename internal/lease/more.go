package lease

import (
	"time"

	"github.com/leasehold-go/leasehold/internal/call"
	"github.com/leasehold-go/leasehold/internal/schedule"
)

// Continuer is a Resource on which an enter may hand on more than one call does, though
// this handle has no waiter there.
type Continuer interface {
	// GoOn prepares the call that goes on. Its reply is that of an ask for nobody.
	GoOn(handle string) *call.Call
}

// goOn goes on where an enter of this handle stopped at a bound.
func (m *Manager) goOn(res Resource) {
	if _, ok := res.(Continuer); !ok {
		m.askSoon(res)
		return
	}
	name := res.FirstKey()
	m.mu.Lock()
	under := m.goingOn[name]
	m.goingOn[name] = true
	m.mu.Unlock()
	if !under {
		c := &continuation{m: m, res: res}
		m.loop.Put(&c.entry, c, time.Now(), 0)
	}
}

// continuation hands on what an enter left. There is one at a time for all resources
// with the same first key.
type continuation struct {
	m     *Manager
	res   Resource
	entry schedule.Entry
}

// Due sends the call. It is not repeated: where it has no answer, the next call of any
// process goes on, at the latest a sign of life.
func (c *continuation) Due(now time.Time, calls []*call.Call) ([]*call.Call, time.Time, time.Duration) {
	next := c.res.(Continuer).GoOn(c.m.handle)
	next.Done = func(ints []int64, err error) {
		var r AskReply
		if err == nil {
			r, err = c.res.ReadAsk(next, ints, nil)
		}
		m := c.m
		m.mu.Lock()
		delete(m.goingOn, c.res.FirstKey())
		m.mu.Unlock()
		if err != nil {
			m.askSoon(c.res) // grants to our own waiters may have been in the reply
			return
		}
		m.deliver(r.Grants, now)
		if r.More {
			m.goOn(c.res)
		}
	}
	return append(calls, next), time.Time{}, 0
}
