package main

import (
	"context"
	"embed"
	"encoding/json"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"
)

//go:embed web
var web embed.FS

// serve runs the clients and the page until the show is interrupted. It begins with protection on.
func (s *show) serve() error {
	listener, err := net.Listen("tcp", s.set.addr)
	if err != nil {
		return fmt.Errorf("the page's address: %w (-addr 127.0.0.1:0 takes a free port)", err)
	}
	s.begin(on)
	srv := &http.Server{Handler: s.handler(), ReadHeaderTimeout: 10 * time.Second}
	context.AfterFunc(s.Ctx, func() { _ = srv.Close() })
	var clients sync.WaitGroup
	clients.Go(func() { s.crowd(s.Ctx, 24*365*time.Hour) })
	defer clients.Wait()
	s.Print("Open http://%s in a browser. Ctrl-C ends it.", listener.Addr())
	if err := srv.Serve(listener); s.Ctx.Err() == nil {
		return err
	}
	return nil
}

func (s *show) handler() http.Handler {
	files, err := fs.Sub(web, "web")
	if err != nil {
		panic(err) // it is embedded
	}
	mux := http.NewServeMux()
	mux.Handle("GET /", http.FileServerFS(files))
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
		if err := s.invalidate(r.Context()); err != nil {
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

// row is a mode as it was last on.
type row struct {
	Mode     mode    `json:"mode"`
	Requests int     `json:"requests"`
	Expiries int     `json:"expiries"`
	Loads    int     `json:"loads"`
	Most     int     `json:"most"`
	Hits     int     `json:"hits"`
	Memory   int     `json:"memory"`
	Stale    int     `json:"stale"`
	Waits    int     `json:"waits"`
	Loaded   int     `json:"loaded"`
	Errors   int     `json:"errors"`
	P99      float64 `json:"p99"`  // ms
	Bars     []int   `json:"bars"` // loads of the last expiries
}

// state is everything that the page shows.
type state struct {
	Setup string `json:"setup"`
	Mode  mode   `json:"mode"`
	Rows  []row  `json:"rows"`
}

func (s *show) state(w http.ResponseWriter, _ *http.Request) {
	now := state{
		Setup: fmt.Sprintf("%d servers with %d clients each, on %s. All want one value, which is fresh for %v; a load takes %v when it is alone.",
			s.set.servers, s.set.clients, s.Server.Label, s.set.ttl, s.set.load),
		Mode: s.now.Load().mode,
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, m := range modes {
		p := s.last[m]
		if p == nil {
			continue
		}
		now.Rows = append(now.Rows, p.row())
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(now)
}
