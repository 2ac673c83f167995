package lease

import (
	"time"

	"github.com/leasehold-go/leasehold/internal/call"
	"github.com/leasehold-go/leasehold/internal/schedule"
)

// A Continuer is a Resource on which an enter may find more to hand on than one call does,
// even if this handle has no waiter there.
type Continuer interface {
	// GoOn prepares the call that continues. Its reply is that of an ask for no waiters.
	GoOn(handle string) *call.Call
}

// goOn continues the work of a call of this handle that stopped at a bound.
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

// A continuation hands on the permits that an enter left when it stopped at a bound. There is
// at most one at a time for all resources with the same first key.
type continuation struct {
	m     *Manager
	res   Resource
	entry schedule.Entry
}

// Due sends the call once. If it gets no answer, the next call of any process continues, at
// the latest a sign of life.
func (c *continuation) Due(_ time.Time, calls []*call.Call) ([]*call.Call, time.Time, time.Duration) {
	next := c.res.(Continuer).GoOn(c.m.handle)
	next.Rank = call.SignOfLife
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
			m.askSoon(c.res) // the lost reply may have carried grants to our own waiters
			return
		}
		m.deliver(r.Grants, next.Sent)
		if r.More {
			m.goOn(c.res)
		}
	}
	return append(calls, next), time.Time{}, 0
}
