// Hotkey shows what package singleflight does for a key that everybody wants: three
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
	"embed"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"net"
	"net/http"
	"slices"
	"sync"
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

const servers, clients = 3, 40 // clients of each server, which ask some four times a second

// ttl is how long a cached value is fresh. A load takes a quarter of it, and longer beside others.
const ttl = time.Second

func main() {
	addr := flag.String("addr", "127.0.0.1:8090", "`address` of the page; port 0 takes any that is free")
	headless := flag.Bool("headless", false, "no page: run with and without protection, and fail where it did not hold")
	flag.Parse()
	demo.Main(func(d *demo.Show) demo.Problems {
		s := newShow(d)
		if *headless {
			return s.run()
		}
		s.serve(*addr)
		return nil
	}, nil)
}

// run is the show without a browser.
func (s *show) run() (problems demo.Problems) {
	s.Print("hotkey: %d servers with %d clients each,\non %s", servers, clients, s.Server)
	s.Print("The value is fresh for %v. A load takes %v, and longer beside others.\n", ttl, ttl/4)
	const line = "%-6s %9v %8v %6v %8v %6v %6v %7v"
	s.Print(line, "", "requests", "expiries", "loads", "at once", "stale", "waits", "memory")
	for _, m := range modes {
		p := s.begin(m)
		for n := 0; n == 0 || n < 5 && len(p.verdict()) > 0; n++ { // a machine that stood still has more time
			ctx, cancel := context.WithTimeout(s.Ctx, 4*ttl)
			s.crowd(ctx)
			cancel()
		}
		s.Print(line, m, p.Requests, p.Expiries, p.Loads, p.Most, p.Answers["stale"], p.Answers["shared"], p.Answers["near"])
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
	servers []*server

	mu     sync.Mutex // also of the counts in phases
	phases []*phase   // the last one is now
}

func newShow(d *demo.Show) *show {
	s := &show{Show: d}
	name := demo.RunName() // everything that it leaves on the server expires
	for range servers {
		rdb := demo.Must(demo.Client(d.URL))
		server := &server{rdb: rdb, name: name, groups: map[mode]*singleflight.Group[string]{}}
		d.Defer(func() { _ = rdb.Close() })
		for m, cfg := range map[mode]singleflight.Config[string]{on: {}, stale: {StaleFor: ttl}, near: {NearFor: ttl}} {
			// Without jitter and early loads, which are good for real caches, every expiry
			// comes exactly when the TTL is over, and can be counted.
			cfg.Name, cfg.TTL, cfg.Jitter = name, ttl, -1
			group := demo.Must(singleflight.New(rdb, cfg))
			d.Defer(func() { demo.Close(context.Background(), group) })
			server.groups[m] = group
		}
		s.servers = append(s.servers, server)
	}
	return s
}

// server answers requests, from one of its caches.
type server struct {
	rdb    *redis.Client
	name   string
	groups map[mode]*singleflight.Group[string]
}

func (s *server) get(ctx context.Context, m mode, key string, load func(context.Context) (string, error)) (singleflight.Source, error) {
	if m != off {
		r, err := s.groups[m].Fetch(ctx, key, load)
		return r.Source, err
	}
	// The cache that everybody writes first: nothing keeps two requests, of one server or
	// of two, from finding nothing at the same time.
	err := s.rdb.Get(ctx, s.name+":"+key).Err()
	if !errors.Is(err, redis.Nil) {
		return singleflight.Cached, err
	}
	v, err := load(ctx)
	if err == nil {
		err = s.rdb.Set(ctx, s.name+":"+key, v, ttl).Err()
	}
	return singleflight.Loaded, err
}

// drop is for all servers, whichever of them does it.
func (s *server) drop(ctx context.Context, m mode, key string) error {
	if m != off {
		return s.groups[m].Invalidate(ctx, key)
	}
	return s.rdb.Del(ctx, s.name+":"+key).Err()
}

// begin makes all servers answer in a mode from now on. Each phase has a key of its own,
// so it begins with a cold cache.
func (s *show) begin(m mode) *phase {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := &phase{Mode: m, Answers: map[string]int{}, mu: &s.mu, key: fmt.Sprint("front-page-", len(s.phases)), origin: &origin{}}
	s.phases = append(s.phases, p)
	return p
}

func (s *show) now() *phase {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.phases[len(s.phases)-1]
}

// crowd lets the clients ask until ctx ends, each one server for the hot key, again and again.
func (s *show) crowd(ctx context.Context) {
	const think = 250 * time.Millisecond
	var all sync.WaitGroup
	for _, server := range s.servers {
		for range clients {
			all.Go(func() {
				for pause := rand.N(think); ; pause = think/2 + rand.N(think) { // they don't all come at once
					select {
					case <-time.After(pause):
					case <-ctx.Done():
						return
					}
					p := s.now()
					p.answered(server.get(s.Ctx, p.Mode, p.key, p.load))
				}
			})
		}
	}
	all.Wait()
}

// phase is what was counted while the servers answered in one mode: by the origin, of
// loads, and by the clients, of answers.
type phase struct {
	Mode     mode           `json:"mode"`
	Requests int            `json:"requests"`
	Answers  map[string]int `json:"answers"` // of them, by a singleflight.Source
	Expiries int            `json:"expiries"`
	Loads    int            `json:"loads"`
	Most     int            `json:"most"` // at once
	Errors   int            `json:"errors"`
	Bars     []int          `json:"bars"` // loads of the last expiries

	mu     *sync.Mutex
	key    string
	origin *origin
	failed error // of the last failed request
}

// origin is what it knows since the last invalidation. A load that an invalidation overtakes
// ends in the old one, and leaves nothing fresh.
type origin struct {
	running   int
	freshTill time.Time // at least
}

// load is the origin, a database or another service. The more loads run at once, the longer
// each takes: so do the things that it stands for, and that is how a stampede brings them down.
func (p *phase) load(ctx context.Context) (_ string, err error) {
	p.mu.Lock()
	o := p.origin
	// A load is due if no other runs and no value that was loaded before can still be fresh, which it is for the TTL
	// from its publication, after its load has ended; but a server knows Redis's clock up to a round trip only.
	if o.running == 0 && time.Now().After(o.freshTill.Add(-ttl/4)) {
		p.Expiries++
		p.Bars = append(p.Bars[max(0, len(p.Bars)-39):], 0)
	}
	p.Bars[len(p.Bars)-1]++ // every other load is one too many
	p.Loads++
	o.running++
	p.Most = max(p.Most, o.running)
	takes := ttl / 4 * time.Duration(30+o.running) / 31
	p.mu.Unlock()
	select {
	case <-time.After(takes):
	case <-ctx.Done():
		err = ctx.Err() // nobody wants the result any more
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	o.running--
	if err == nil {
		o.freshTill = time.Now().Add(ttl)
	}
	return "the front page", err
}

// forget begins anew: of a load that runs meanwhile nobody can say on which side of an invalidation it was.
func (p *phase) forget() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.origin = &origin{}
}

// answered counts an answer to a client.
func (p *phase) answered(from singleflight.Source, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err != nil {
		p.Errors, p.failed = p.Errors+1, err
		return
	}
	p.Requests++
	p.Answers[from.String()]++
}

// verdict lists what went against the promises, and what kept them from being tried: a run
// without expiries, or without a crowd that would have stampeded, has shown nothing.
func (p *phase) verdict() (problems demo.Problems) {
	p.mu.Lock()
	defer p.mu.Unlock()
	bad := func(wrong bool, format string, args ...any) {
		problems.If(wrong, "protection "+string(p.Mode)+": "+format, args...)
	}
	bad(p.Errors > 0, "%d requests failed, such as: %v", p.Errors, p.failed)
	bad(p.Requests == 0 || p.Expiries < 2, "%d requests in %d expiries have tried nothing", p.Requests, p.Expiries)
	if p.Mode == off {
		bad(p.Loads < 2*p.Expiries, "%d loads in %d expiries is no stampede, so there was nothing to be prevented", p.Loads, p.Expiries)
		return problems
	}
	bad(p.Loads != p.Expiries, "%d loads in %d expiries", p.Loads, p.Expiries)
	bad(p.Most > 1, "%d loads ran at once", p.Most)
	shown := map[mode]string{on: "shared", stale: "stale", near: "near"}[p.Mode]
	bad(p.Answers[shown] == 0 || p.Answers["cached"] == 0, "its answers have tried nothing: %v; want some that are %s, and cached", p.Answers, shown)
	return problems
}

//go:embed web
var web embed.FS

// serve runs the clients and the page until the show is interrupted. It begins with protection on.
func (s *show) serve(addr string) {
	listener, err := net.Listen("tcp", addr)
	if err != nil {
		demo.Check(fmt.Errorf("the page's address: %w (-addr 127.0.0.1:0 takes a free port)", err))
	}
	s.begin(on)
	srv := &http.Server{Handler: s.handler(), ReadHeaderTimeout: 10 * time.Second}
	context.AfterFunc(s.Ctx, func() { _ = srv.Close() })
	var crowd sync.WaitGroup
	crowd.Go(func() { s.crowd(s.Ctx) })
	s.Print("Open http://%s in a browser. Ctrl-C ends it.", listener.Addr())
	err = srv.Serve(listener)
	if s.Ctx.Err() == nil {
		demo.Check(err)
	}
	crowd.Wait()
}

func (s *show) handler() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /", http.FileServerFS(demo.Must(fs.Sub(web, "web"))))
	mux.HandleFunc("GET /state", s.state)
	mux.HandleFunc("POST /mode", func(w http.ResponseWriter, r *http.Request) {
		m := mode(r.PostFormValue("mode"))
		if !slices.Contains(modes, m) {
			http.Error(w, "no such mode", http.StatusBadRequest)
			return
		}
		s.begin(m)
	})
	mux.HandleFunc("POST /invalidate", func(w http.ResponseWriter, r *http.Request) {
		p := s.now()
		p.forget()
		defer p.forget()
		if err := s.servers[0].drop(r.Context(), p.Mode, p.key); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
		}
	})
	// Other sites that are open in the same browser can't press the buttons.
	guarded := http.NewCrossOriginProtection().Handler(mux)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Security-Policy", "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'")
		w.Header().Set("Cache-Control", "no-store")
		guarded.ServeHTTP(w, r)
	})
}

// state is everything that the page shows: each mode as it was last on.
func (s *show) state(w http.ResponseWriter, _ *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	last := map[mode]*phase{}
	for _, p := range s.phases {
		last[p.Mode] = p
	}
	rows := slices.DeleteFunc([]*phase{last[off], last[on], last[stale], last[near]}, func(p *phase) bool { return p == nil })
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(map[string]any{
		"setup": fmt.Sprintf("%d servers with %d clients each, on %s. All want one value, which is fresh for %v; a load takes %v when it is alone.",
			servers, clients, s.Server, ttl, ttl/4),
		"mode": s.phases[len(s.phases)-1].Mode, "rows": rows,
	})
}
