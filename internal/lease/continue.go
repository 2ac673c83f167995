package lease

import (
	"github.com/leasehold-go/leasehold/internal/call"

	"github.com/leasehold-go/leasehold/internal/protocol"
)

// A script does a bounded part of the work that it finds for others. A call that stopped at such a
// bound says so, and its process goes on.

// goOn goes on where a call stopped at a bound, until all is done or a call has no answer. The
// next call of any process then goes on, at the latest a sign of life.
func (m *Manager) goOn(next func() *call.Call, read func(c *call.Call, reply []int64) (protocol.Reply, error)) error {
	for {
		c := next()
		ints, err := m.client.Do(m.client.Brief(), c)
		var r protocol.Reply
		if err == nil {
			r, err = read(c, ints)
		}
		if err != nil {
			return err
		}
		if m.Granted(r.Grants, c.Sent); !r.More {
			return nil
		}
	}
}

// handOn goes on where a leave stopped at a bound: a leave that is sent again hands on more.
func (a *attempt) handOn() {
	_ = a.m.goOn(func() *call.Call {
		a.m.mu.Lock()
		defer a.m.mu.Unlock()
		c := a.leaveCall()
		c.Confirm = call.Confirm{}
		return c
	}, func(_ *call.Call, reply []int64) (protocol.Reply, error) { return a.req.ReadLeave(reply) })
}

// goOnEntering continues the work of an enter of this handle that stopped at a bound, once at a
// time for all resources with the same first key.
func (m *Manager) goOnEntering(res protocol.Resource) {
	name := res.FirstKey()
	if res.GoOn(m.handle) == nil {
		m.ReplyLost(res)
		return
	}
	m.mu.Lock()
	under := m.goingOn[name]
	m.goingOn[name] = true
	m.mu.Unlock()
	if under {
		return
	}
	m.Go(func() {
		err := m.goOn(func() *call.Call {
			c := res.GoOn(m.handle)
			c.Rank = call.SignOfLife
			return c
		}, func(c *call.Call, reply []int64) (protocol.Reply, error) { return res.ReadAsk(c, reply, nil) })
		m.mu.Lock()
		defer m.mu.Unlock()
		if delete(m.goingOn, name); err != nil {
			m.replyLost(res) // the lost reply may have carried grants to our own waiters
		}
	})
}
