package httpcap_test

import (
	"bytes"
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold/integrations/httpcap"
	"github.com/leasehold-go/leasehold/integrations/internal/captest"
	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/semaphore"
)

// The cost of the middleware over that of the semaphore. The replies of the server come out of
// memory, so that the way to it does not hide the difference: a round trip of the loopback
// varies by more than that. Both are measured in turns, and of both the fastest tenth counts,
// so that other programs do not.
func BenchmarkCost(b *testing.B) {
	caps := captest.New(b, echoing(b), semaphore.Config{Limit: 1000, TTL: time.Hour})
	ctx := b.Context()
	bare := func() {
		lease, err := caps.TryAcquire(ctx, tenant)
		if err != nil {
			b.Fatal(err)
		}
		if err := lease.Release(); err != nil {
			b.Fatal(err)
		}
	}
	h := capped(b, caps, httpcap.Config{}, func(http.ResponseWriter, *http.Request) {})
	r := httptest.NewRequestWithContext(ctx, http.MethodGet, "/", nil)
	through := func() { h.ServeHTTP(nil, r) } // an answer other than the handler's would fail
	var of [2][]time.Duration
	for b.Loop() {
		for i, fn := range []func(){bare, through} {
			began := time.Now()
			for range 100 {
				fn()
			}
			of[i] = append(of[i], time.Since(began)/100)
		}
	}
	for i := range of {
		slices.Sort(of[i])
	}
	tenth := len(of[0]) / 10
	b.ReportMetric(float64(of[0][tenth].Nanoseconds()), "ns/bare")
	b.ReportMetric(float64((of[1][tenth] - of[0][tenth]).Nanoseconds()), "ns/over")
	b.ReportMetric(testing.AllocsPerRun(100, through)-testing.AllocsPerRun(100, bare), "allocs/over")
	b.ReportMetric(0, "ns/op")
}

// echoing returns a client of an embedded server, which answers each script once. After that
// the connections give the same reply from memory.
func echoing(t testing.TB) *redis.Client {
	replies := new(replies)
	rdb := redis.NewClient(&redis.Options{
		Addr: redistest.Mini(t).Addr(), PoolSize: 1,
		Dialer: func(ctx context.Context, network, addr string) (net.Conn, error) {
			conn, err := new(net.Dialer).DialContext(ctx, network, addr)
			return &echo{Conn: conn, replies: replies}, err
		},
	})
	t.Cleanup(func() { _ = rdb.Close() })
	return rdb
}

type replies struct {
	mu     sync.Mutex
	byHash map[string][]byte
}

// echo is a connection on which one command at a time is under way.
type echo struct {
	net.Conn
	*replies
	hash  string // of the script that was called last
	reply []byte // what is to be read
}

func (e *echo) Write(p []byte) (int, error) {
	e.hash = ""
	if bytes.Contains(p, []byte("evalsha")) {
		e.hash = string(p[bytes.Index(p, []byte("$40\r\n")):][:45])
	}
	e.mu.Lock()
	e.reply = e.byHash[e.hash]
	e.mu.Unlock()
	if e.reply != nil {
		return len(p), nil
	}
	return e.Conn.Write(p)
}

func (e *echo) Read(p []byte) (int, error) {
	if e.reply != nil {
		n := copy(p, e.reply)
		e.reply = e.reply[n:]
		return n, nil
	}
	n, err := e.Conn.Read(p)
	if e.hash != "" && err == nil && p[0] != '-' {
		e.mu.Lock()
		if e.byHash == nil {
			e.byHash = make(map[string][]byte)
		}
		e.byHash[e.hash] = bytes.Clone(p[:n])
		e.mu.Unlock()
	}
	return n, err
}
