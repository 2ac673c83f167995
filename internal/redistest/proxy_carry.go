package redistest

import (
	"net"
	"time"
)

// carry writes what the direction's reader sent, when the network lets it.
func (c *proxyConn) carry(dir Direction) {
	queue, dest := c.toServer, c.server
	if dir == ToClient {
		queue, dest = c.toClient, c.client
	}
	gone := false // dest doesn't take any more
	for {
		var x parcel
		select {
		case x = <-queue:
		case <-c.dead:
			c.abandon(queue)
			return
		}
		if !c.await(dir, x.due) {
			notify(x.fired)
			c.kill()
			continue
		}
		if x.cmd != "" && dir == ToServer {
			c.p.count(x.cmd)
		}
		if len(x.raw) > 0 && !gone {
			n, fault := c.p.spend(dir, len(x.raw))
			if fault != nil {
				// The other end first: the answer to what is written now would
				// else be quicker than the end of the connection.
				c.cutOff(dir)
			}
			_, err := dest.Write(x.raw[:n])
			if fault != nil {
				x.kill, x.fired = true, append(x.fired, fault)
			}
			// A client may be gone and have sent requests before that are still on their way to the server:
			// only the other side's end ends the connection.
			gone = err != nil
		}
		if x.end && dir == ToServer {
			_ = c.server.(*net.TCPConn).CloseWrite()
		} else if x.end || x.kill || gone && dir == ToServer {
			c.kill()
		}
		notify(x.fired)
	}
}

// abandon tells of the faults that a dead connection still carried.
func (c *proxyConn) abandon(queue <-chan parcel) {
	for {
		select {
		case x := <-queue:
			notify(x.fired)
		default:
			return
		}
	}
}

// await returns when a parcel may be written, or reports false when it never will be.
func (c *proxyConn) await(dir Direction, due time.Time) bool {
	if wait := time.Until(due); wait > 0 {
		timer := time.NewTimer(wait)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-c.dead:
			return false
		}
	}
	wasCut := false
	for {
		n, changed := c.p.current()
		if !n.cut[dir] {
			return !wasCut || dir == ToClient || n.strays || !c.clientLeft.Load()
		}
		wasCut = true
		select {
		case <-changed:
		case <-c.dead:
			return false
		}
	}
}

// loses reports whether a message is to be lost.
func (p *Proxy) loses() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.network.dropMessages {
		p.dropped++
	}
	return p.network.dropMessages
}

func (p *Proxy) count(cmd string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.counts[cmd]++
}
