package redistest

import (
	"maps"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// Proxy stands between clients and one server and does to them what a network can do, at exactly chosen
// moments. It understands RESP3, so that a fault can be aimed at the reply to one command, or at messages alone.
//
// Not understood are CLIENT REPLY and MONITOR, which break the pairing of commands and replies.
type Proxy struct {
	tb       testing.TB
	listener net.Listener
	running  sync.WaitGroup

	mu       sync.Mutex
	upstream string
	closed   bool
	conns    map[*proxyConn]struct{}
	lastConn int
	counts   map[string]int
	dropped  int
	hook     func(Event) Action
	faults   []*Fault
	network  network
	changed  chan struct{} // closed, and replaced, when network changes
}

// network is how the proxy carries bytes at the moment.
type network struct {
	delay        [2]time.Duration
	cut          [2]bool
	strays       bool // what closed connections had in flight is still delivered
	refuse       bool
	dropMessages bool
	budget       [2]*budget
}

// Direction is one of the two ways through a proxy.
type Direction int

const (
	ToServer Direction = iota
	ToClient
)

// NewProxy starts a proxy in front of a server. It ends with the test.
func NewProxy(tb testing.TB, upstreamAddr string) *Proxy {
	tb.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	CheckNow(tb, err == nil, "start proxy: %v", err)
	p := &Proxy{
		tb: tb, listener: listener, upstream: upstreamAddr,
		conns: map[*proxyConn]struct{}{}, counts: map[string]int{}, changed: make(chan struct{}),
	}
	p.running.Go(p.accept)
	tb.Cleanup(p.Close)
	return p
}

func (p *Proxy) Addr() string { return p.listener.Addr().String() }

// Client makes a client of the server behind the proxy, closed at the end of the test.
func (p *Proxy) Client(mod ...func(*redis.Options)) *redis.Client {
	return newClient(p.tb, p.Addr(), mod)
}

// SetUpstream sends new connections to another server. Open ones stay.
func (p *Proxy) SetUpstream(addr string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.upstream = addr
}

// Close ends the proxy and its connections. The end of the test calls it too.
func (p *Proxy) Close() {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	_ = p.listener.Close()
	p.CloseAll()
	p.running.Wait()
}

// CloseAll closes the open connections, with whatever they have in flight.
func (p *Proxy) CloseAll() {
	p.mu.Lock()
	open := maps.Clone(p.conns)
	p.mu.Unlock()
	for c := range open {
		c.kill()
	}
}

// Count says how many commands of that name were forwarded to the server since the start or the last
// ResetCounts. A command counts before its bytes are written, so a client that has the reply sees it counted.
func (p *Proxy) Count(name string) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.counts[strings.ToUpper(name)]
}

// Commands lists the counts of all commands, by upper-case name.
func (p *Proxy) Commands() map[string]int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return maps.Clone(p.counts)
}

func (p *Proxy) ResetCounts() {
	p.mu.Lock()
	defer p.mu.Unlock()
	clear(p.counts)
}

func (p *Proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		p.mu.Lock()
		if p.closed || p.network.refuse {
			p.mu.Unlock()
			_ = client.Close()
			continue
		}
		p.lastConn++
		c := newProxyConn(p, p.lastConn, client)
		p.conns[c] = struct{}{} // before it runs, or a CloseAll could miss it
		upstream := p.upstream
		p.running.Go(func() {
			c.run(upstream)
			p.mu.Lock()
			defer p.mu.Unlock()
			delete(p.conns, c)
		})
		p.mu.Unlock()
	}
}

// Delay holds back every byte for so long in each direction. Bytes in flight keep the delay that they set out with.
func (p *Proxy) Delay(toServer, toClient time.Duration) {
	p.change(func(n *network) { n.delay = [2]time.Duration{toServer, toClient} })
}

// Cut stops the bytes of the chosen directions and leaves the connections
// open: neither side is told. The bytes are held.
func (p *Proxy) Cut(toServer, toClient bool) {
	p.change(func(n *network) { n.cut, n.strays = [2]bool{toServer, toClient}, false })
}

// Heal ends a Cut: held bytes go on. What was held towards the server for a
// client that has closed its connection meanwhile is discarded.
func (p *Proxy) Heal() { p.change(func(n *network) { n.cut, n.strays = [2]bool{}, false }) }

// HealLate ends a Cut and delivers to the server also what clients had sent on connections that they have
// closed meanwhile, as an operating system does that still retransmits.
func (p *Proxy) HealLate() { p.change(func(n *network) { n.cut, n.strays = [2]bool{}, true }) }

// Refuse has new connections closed at once. Open ones stay.
func (p *Proxy) Refuse(refuse bool) { p.change(func(n *network) { n.refuse = refuse }) }

// DropMessages loses every message to a subscriber, not the confirmations of
// its subscriptions. Hooks don't see the lost ones; Dropped counts them.
func (p *Proxy) DropMessages(drop bool) { p.change(func(n *network) { n.dropMessages = drop }) }

// Dropped is the number of messages that DropMessages has lost so far.
func (p *Proxy) Dropped() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.dropped
}

func (p *Proxy) change(set func(*network)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	set(&p.network)
	close(p.changed)
	p.changed = make(chan struct{})
}

// current is the network of this moment, and a channel that tells when it is another one.
func (p *Proxy) current() (network, <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.network, p.changed
}

// budget is what CutAfter leaves to be carried, over all connections.
type budget struct {
	left  int64
	fault *Fault
}

// CutAfter closes the connection that carries byte n from now in that direction right after that byte (with
// 0, before the first), counted over all connections. It happens once. A client with one open connection
// makes the count mean what it seems to: a new connection begins with an exchange of its own.
func (p *Proxy) CutAfter(dir Direction, n int64) *Fault {
	f := newFault(p.tb)
	p.change(func(net *network) { net.budget[dir] = &budget{left: n, fault: f} })
	return f
}

// spend takes n bytes from the direction's budget. It returns how many of them
// may pass, and the fault where the connection ends after them.
func (p *Proxy) spend(dir Direction, n int) (int, *Fault) {
	p.mu.Lock()
	defer p.mu.Unlock()
	b := p.network.budget[dir]
	if b == nil {
		return n, nil
	}
	if int64(n) < b.left {
		b.left -= int64(n)
		return n, nil
	}
	p.network.budget[dir] = nil
	return int(b.left), b.fault
}
