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
	listener net.Listener

	mu    sync.Mutex
	cut   bool
	conns []net.Conn // both ends of each connection
}

// Link opens a way to the server, which is cut when the show ends.
func (s *Show) Link() *Link {
	l := &Link{listener: Must(net.Listen("tcp", "127.0.0.1:0"))}
	s.Defer(func() { _ = l.listener.Close(); l.Cut() })
	opt := s.Redis.Options()
	go func() {
		for {
			client, err := l.listener.Accept()
			if err != nil {
				return
			}
			go func() {
				if server, err := net.DialTimeout(opt.Network, opt.Addr, 3*time.Second); err == nil {
					l.carry(client, server)
					_ = server.Close()
				}
				_ = client.Close()
			}()
		}
	}()
	return l
}

// Addr is where a client finds the way.
func (l *Link) Addr() string { return l.listener.Addr().String() }

// Cut ends all connections and refuses new ones.
func (l *Link) Cut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.cut = true
	for _, c := range l.conns {
		_ = c.Close()
	}
	l.conns = nil
}

// Mend lets clients connect again.
func (l *Link) Mend() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.cut = false
}

// carry returns when either end has closed, or the way is cut.
func (l *Link) carry(client, server net.Conn) {
	l.mu.Lock()
	cut := l.cut
	if !cut {
		l.conns = append(l.conns, client, server)
	}
	l.mu.Unlock()
	if cut {
		return
	}
	go func() {
		_, _ = io.Copy(server, client)
		_, _ = client.Close(), server.Close()
	}()
	_, _ = io.Copy(client, server)
}
