package redistest

import (
	"bufio"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// proxyConn is one client's connection and its counterpart at the server. In each direction one goroutine reads and
// decides, and another carries, so that a delay holds up no reading and a cut fills buffers as a network's would.
type proxyConn struct {
	p        *Proxy
	id       int
	client   net.Conn
	server   net.Conn
	toServer chan parcel
	toClient chan parcel

	dead     chan struct{} // closed when the connection is over
	deadOnce sync.Once

	clientLeft atomic.Bool  // the client has closed its side
	left       atomic.Int32 // how many sides have

	track tracker
}

// parcel is what one direction carries at a time. Its carrier is in proxy_carry.go.
type parcel struct {
	raw   []byte
	cmd   string // the command's name, to be counted
	due   time.Time
	end   bool // the sender closed its side
	kill  bool // close the connection here
	fired []*Fault
}

func newProxyConn(p *Proxy, id int, client net.Conn) *proxyConn {
	return &proxyConn{
		p: p, id: id, client: client, dead: make(chan struct{}),
		toServer: make(chan parcel, 256), toClient: make(chan parcel, 256),
	}
}

func (c *proxyConn) run(upstream string) {
	defer c.kill()
	server, err := net.DialTimeout("tcp", upstream, 5*time.Second)
	if err != nil {
		return
	}
	c.server = server
	defer server.Close()
	var wg sync.WaitGroup
	wg.Go(func() { c.readRequests(); c.sideLeft() })
	wg.Go(func() { c.readReplies(); c.sideLeft() })
	wg.Go(func() { c.carry(ToServer) })
	wg.Go(func() { c.carry(ToClient) })
	<-c.dead
	_ = server.Close()
	wg.Wait()
}

// kill ends the connection at once, with what is in flight.
func (c *proxyConn) kill() {
	c.deadOnce.Do(func() {
		close(c.dead)
		_ = c.client.Close()
	})
}

// cutOff closes the end from which a direction's bytes come.
func (c *proxyConn) cutOff(dir Direction) {
	if dir == ToServer {
		_ = c.client.Close()
	} else {
		_ = c.server.Close()
	}
}

// sideLeft notes that a side has closed. What is still in flight when both have can be delivered to nobody.
func (c *proxyConn) sideLeft() {
	if c.left.Add(1) == 2 {
		c.kill()
	}
}

// send hands a parcel to the carrier of a direction. It reports false when the connection is over.
func (c *proxyConn) send(dir Direction, x parcel) bool {
	n, _ := c.p.current()
	x.due = time.Now().Add(n.delay[dir])
	queue := c.toServer
	if dir == ToClient {
		queue = c.toClient
	}
	select {
	case queue <- x:
		return true
	case <-c.dead:
		notify(x.fired)
		return false
	}
}

func notify(fired []*Fault) {
	for _, f := range fired {
		close(f.fired)
	}
}

// sendEvent asks what becomes of ev and does it with raw. It reports false
// when nothing more is to be read in that direction.
func (c *proxyConn) sendEvent(dir Direction, ev Event, raw []byte) bool {
	act, struck := c.p.decide(ev)
	if act.gate != nil {
		notify(struck)
		struck = nil
		select {
		case <-act.gate:
		case <-c.dead:
			return false
		}
	}
	switch act.verdict {
	case closeConn:
		c.send(dir, parcel{kill: true, fired: struck})
		return false
	case vanish:
		notify(struck)
		return ev.Stage == OnMessage
	}
	if ev.Stage == OnRequest {
		c.track.sent(ev.Cmd)
	}
	notify(struck)
	return c.send(dir, parcel{raw: raw, cmd: ev.Name()})
}

func (c *proxyConn) readRequests() {
	r := bufio.NewReader(c.client)
	for {
		cmd, raw, err := readCommand(r)
		if err != nil {
			break
		}
		if len(cmd) == 0 {
			continue
		}
		cmd[0] = strings.ToUpper(cmd[0])
		if !c.sendEvent(ToServer, Event{Stage: OnRequest, Conn: c.id, Cmd: cmd}, raw) {
			// Read on, or a client that sends a lot would block where a network takes it.
			drain(r)
			c.clientLeft.Store(true)
			return
		}
	}
	c.clientLeft.Store(true)
	c.send(ToServer, parcel{end: true})
}

func (c *proxyConn) readReplies() {
	r := bufio.NewReader(c.server)
	for {
		f, err := readFrame(r)
		if err != nil {
			c.send(ToClient, parcel{end: true})
			return
		}
		ev, known := c.track.received(f)
		if !known {
			if !c.send(ToClient, parcel{raw: f.raw}) {
				return
			}
			continue
		}
		ev.Conn, ev.Reply = c.id, f.raw
		if ev.Stage == OnMessage && c.p.loses() {
			continue
		}
		if !c.sendEvent(ToClient, ev, f.raw) {
			drain(r)
			return
		}
	}
}

func drain(r *bufio.Reader) {
	for {
		if _, err := r.Discard(1 << 10); err != nil {
			return
		}
	}
}

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
