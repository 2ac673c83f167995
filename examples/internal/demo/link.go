package demo

import (
	"io"
	"net"
	"sync"
	"time"
)

// Link is a way to Redis that can be cut and mended, as a network can: it passes
// on what is sent in both directions.
type Link struct {
	listener         net.Listener
	network, address string // of the server

	mu    sync.Mutex
	cut   bool
	conns map[net.Conn]bool // both ends of each connection
}

// Link opens a way to the server, which is cut when the show ends.
func (s *Show) Link() *Link {
	opt := s.Redis.Options()
	listener := Must(net.Listen("tcp", "127.0.0.1:0"))
	l := &Link{listener: listener, network: opt.Network, address: opt.Addr, conns: map[net.Conn]bool{}}
	s.Defer(func() { _ = listener.Close(); l.Cut() })
	go l.serve()
	return l
}

// Addr is where a client finds the way.
func (l *Link) Addr() string { return l.listener.Addr().String() }

// Cut ends all connections and refuses new ones.
func (l *Link) Cut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.cut = true
	for c := range l.conns {
		_ = c.Close()
	}
	clear(l.conns)
}

// Mend lets clients connect again.
func (l *Link) Mend() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.cut = false
}

func (l *Link) serve() {
	for {
		client, err := l.listener.Accept()
		if err != nil {
			return
		}
		go l.carry(client)
	}
}

func (l *Link) carry(client net.Conn) {
	if !l.keep(client) {
		return
	}
	server, err := net.DialTimeout(l.network, l.address, 3*time.Second)
	if err != nil || !l.keep(server) {
		_ = client.Close()
		return
	}
	var both sync.WaitGroup
	for _, way := range [][2]net.Conn{{client, server}, {server, client}} {
		both.Go(func() {
			_, _ = io.Copy(way[0], way[1])
			_, _ = client.Close(), server.Close() // the end of either direction is the end of both
		})
	}
	both.Wait()
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.conns, client)
	delete(l.conns, server)
}

// keep notes a connection, so that Cut ends it, or ends it now.
func (l *Link) keep(c net.Conn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.cut {
		_ = c.Close()
		return false
	}
	l.conns[c] = true
	return true
}
