// Hotkey shows what package singleflight does for a key that everybody wants: some
// servers answer requests for one value, which a slow origin makes and which is cached
// for a second. A page shows live what reaches the origin, with switches that turn the
// protection off, serve stale values during a load, and keep the value in the servers' memory.
//
//	go run ./examples/hotkey
//
// prints the page's address and serves until it is interrupted.
//
//	go run ./examples/hotkey -headless
//
// needs no browser: it runs each of these for a while, prints what it came to, and exits with 1
// if with protection there was more than one load in an expiry, or if that could not be tried.
//
// The servers are in this process, each with a client and a handle of its own: all that
// they share is the Redis or Valkey at REDIS_URL, or an embedded one.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold/examples/internal/demo"
	"github.com/leasehold-go/leasehold/singleflight"
)

// mode is how the servers answer requests.
type mode string

const (
	off   mode = "off"   // GET, load where that finds nothing, SET
	on    mode = "on"    // singleflight
	stale mode = "stale" // singleflight, which serves a stale value during a load
	near  mode = "near"  // singleflight, which keeps the value in the memory of each server
)

var modes = []mode{off, on, stale, near}

// settings is what the flags say.
type settings struct {
	addr             string
	headless         bool
	servers, clients int // clients of each server
	ttl, staleFor    time.Duration
	load             time.Duration // how long the origin takes for one load alone
	phase            time.Duration // of a headless run
}

func main() {
	set := settings{}
	flag.StringVar(&set.addr, "addr", "127.0.0.1:8090", "`address` of the page; port 0 takes any that is free")
	flag.BoolVar(&set.headless, "headless", false, "no page: run with and without protection, and fail where it did not hold")
	flag.IntVar(&set.servers, "servers", 3, "servers")
	flag.IntVar(&set.clients, "clients", 40, "clients of each server, which ask some four times a second")
	flag.DurationVar(&set.ttl, "ttl", time.Second, "how long a cached value is fresh")
	flag.DurationVar(&set.staleFor, "stale", time.Second, "how long after that it is served during a load, where that is switched on")
	flag.DurationVar(&set.load, "load", 250*time.Millisecond, "how long a load takes; others at the same time make it slower")
	flag.DurationVar(&set.phase, "phase", 4*time.Second, "with -headless: how long each of the phases lasts")
	flag.Parse()
	program := set.program()
	program.Serves = !set.headless
	program.Main()
}

func (set settings) program() demo.Program {
	return demo.Program{Name: "hotkey", Limit: 5 * time.Minute, Run: func(s *demo.Show) demo.Problems { return run(newShow(s, set)) }}
}

func run(s *show) (problems demo.Problems) {
	set := s.set
	s.Print("hotkey: %d servers with %d clients each,\non %s", set.servers, set.clients, s.Server.Label)
	if !set.headless {
		demo.Check(s.serve())
		return nil
	}
	s.Print("The value is fresh for %v. A load takes %v, and longer beside others.\nFour phases of %v:\n", set.ttl, set.load, set.phase)
	const line = "%-6s %9v %8v %6v %8v %6v %6v %7v %9v"
	s.Print(line, "", "requests", "expiries", "loads", "at once", "stale", "waits", "memory", "p99")
	for _, m := range modes {
		p := s.begin(m)
		for n := 0; n == 0 || n < 5 && p.untried() != ""; n++ { // a machine that stood still has more time
			s.crowd(s.Ctx, set.phase)
			demo.Check(s.Ctx.Err())
		}
		p.settle()
		r := p.row()
		s.Print(line, m, r.Requests, r.Expiries, r.Loads, r.Most, r.Stale, r.Waits, r.Memory, p.p99().Round(100*time.Microsecond))
		problems = append(problems, p.verdict()...)
	}
	if len(problems) == 0 {
		s.Print("\nWith protection there was exactly one load in each expiry.")
	}
	return problems
}

// show is the servers and what is counted of them.
type show struct {
	*demo.Show
	set     settings
	servers []*server

	now   atomic.Pointer[phase]
	mu    sync.Mutex // one switch at a time
	count int
	last  map[mode]*phase // of each mode
}

func newShow(d *demo.Show, set settings) *show {
	s := &show{Show: d, set: set, last: map[mode]*phase{}}
	name := demo.RunName("hotkey") // everything that it leaves on the server expires
	for range set.servers {
		server := newServer(d.Server.URL, name, set)
		d.Defer(server.close)
		s.servers = append(s.servers, server)
	}
	return s
}

// begin makes all servers answer in a mode from now on. Each phase has a key of its own,
// so it begins with a cold cache, and what is counted in one has nothing to do with
// another's.
func (s *show) begin(m mode) *phase {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.count++
	p := newPhase(m, fmt.Sprint("front-page-", s.count), s.set)
	s.last[m] = p
	s.now.Store(p)
	return p
}

// crowd lets the clients ask for a while, each one server for the hot key, again and again.
func (s *show) crowd(ctx context.Context, lasts time.Duration) {
	const think = 250 * time.Millisecond
	until, cancel := context.WithTimeout(ctx, lasts)
	defer cancel()
	var all sync.WaitGroup
	for _, server := range s.servers {
		for range s.set.clients {
			all.Go(func() {
				pause := rand.N(think) // they don't all come at once
				for {
					select {
					case <-time.After(pause):
					case <-until.Done():
						return
					}
					p := s.now.Load() // this request keeps to it, whatever comes meanwhile
					sent := p.at()
					load, source, err := server.get(ctx, p.mode, p.key, p.load)
					if ctx.Err() != nil {
						return
					}
					p.answered(load, source, err, sent)
					pause = think/2 + rand.N(think)
				}
			})
		}
	}
	all.Wait()
}

// invalidate has one server do it: that is enough for all of them.
func (s *show) invalidate(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.now.Load()
	p.invalidate()
	defer p.invalidate()
	return s.servers[0].drop(ctx, p.mode, p.key)
}

// server answers requests, from one of its caches. What it caches is the number of the
// load that made the value.
type server struct {
	rdb    *redis.Client
	name   string
	ttl    time.Duration
	groups map[mode]*singleflight.Group[int64]
}

func newServer(url, name string, set settings) *server {
	rdb := demo.Must(demo.Client(url))
	s := &server{rdb: rdb, name: name, ttl: set.ttl, groups: map[mode]*singleflight.Group[int64]{}}
	for m, cfg := range map[mode]singleflight.Config[int64]{on: {}, stale: {StaleFor: set.staleFor}, near: {NearFor: set.ttl}} {
		// Without jitter and early loads, which are good for real caches, every expiry
		// comes exactly when the TTL is over, and can be counted.
		cfg.Name, cfg.TTL, cfg.Jitter = name, set.ttl, -1
		s.groups[m] = demo.Must(singleflight.New(rdb, cfg))
	}
	return s
}

func (s *server) close() {
	for _, g := range s.groups {
		demo.Close(context.Background(), g)
	}
	_ = s.rdb.Close()
}

type loader func(ctx context.Context) (int64, error)

func (s *server) get(ctx context.Context, m mode, key string, load loader) (int64, singleflight.Source, error) {
	if m != off {
		r, err := s.groups[m].Fetch(ctx, key, load)
		return r.Value, r.Source, err
	}
	// The cache that everybody writes first: nothing keeps two requests, of one server or
	// of two, from finding nothing at the same time.
	v, err := s.rdb.Get(ctx, s.name+":"+key).Int64()
	if !errors.Is(err, redis.Nil) {
		return v, singleflight.Cached, err
	}
	if v, err = load(ctx); err == nil {
		err = s.rdb.Set(ctx, s.name+":"+key, v, s.ttl).Err()
	}
	return v, singleflight.Loaded, err
}

func (s *server) drop(ctx context.Context, m mode, key string) error {
	if m != off {
		return s.groups[m].Invalidate(ctx, key)
	}
	return s.rdb.Del(ctx, s.name+":"+key).Err()
}
