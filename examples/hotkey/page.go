package main

import (
	"context"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"
)

//go:embed web
var web embed.FS

// page shows a session to browsers, and takes their orders.
type page struct {
	s     *session
	files http.Handler

	mu    sync.Mutex
	last  []byte        // the picture
	fresh chan struct{} // closed when there is a newer one
}

// show runs a session and its page until ctx ends, or something does that should
// not. It begins with protection on.
func show(ctx context.Context, set settings, out io.Writer) error {
	listener, err := net.Listen("tcp", set.addr)
	if err != nil {
		return fmt.Errorf("the page's address: %w (-addr 127.0.0.1:0 takes a free port)", err)
	}
	defer listener.Close()
	s, err := newSession(ctx, set)
	if err != nil {
		return unlessOver(ctx, err)
	}
	defer s.close()
	if err := s.fleet.change(on); err != nil {
		return unlessOver(ctx, err)
	}

	files, err := fs.Sub(web, "web")
	if err != nil {
		return err
	}
	p := &page{s: s, files: http.FileServerFS(files), fresh: make(chan struct{})}
	srv := &http.Server{Handler: p.handler(), ReadHeaderTimeout: 10 * time.Second}
	defer srv.Close()
	ended := make(chan error, 1)
	go func() { ended <- srv.Serve(listener) }()
	var background sync.WaitGroup
	background.Go(func() { s.crowd.run(s.fleet.ctx, nil) })
	background.Go(func() { p.draw(s.fleet.ctx) })
	defer background.Wait()

	fmt.Fprintf(out, "hotkey: %d server processes with %d clients each,\non %s\n", set.processes, set.clients, s.srv.Label)
	fmt.Fprintf(out, "Open http://%s in a browser. Ctrl-C ends it.\n", listener.Addr())
	select {
	case <-s.fleet.ctx.Done():
		return unlessOver(ctx, context.Cause(s.fleet.ctx))
	case err := <-ended:
		s.fleet.cancel(errOver)
		return err
	}
}

// unlessOver: what fails because ctx has ended is no error.
func unlessOver(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return err
}

func (p *page) handler() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /", p.files)
	mux.HandleFunc("GET /settings", p.settings)
	mux.HandleFunc("GET /live", p.live)
	mux.HandleFunc("POST /mode", p.mode)
	mux.HandleFunc("POST /invalidate", p.invalidate)
	// Other sites that are open in the same browser can't press the buttons.
	guarded := http.NewCrossOriginProtection().Handler(mux)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "+
			"connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'")
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Cache-Control", "no-store")
		guarded.ServeHTTP(w, r)
	})
}

// settings is what doesn't change while the program runs. Durations are in ms.
func (p *page) settings(w http.ResponseWriter, _ *http.Request) {
	set := p.s.set
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(map[string]any{
		"server": p.s.srv.Label, "processes": set.processes, "clients": set.clients,
		"ttl": millis(set.ttl), "stale": millis(set.stale), "load": millis(set.load),
		"shown": shown.Seconds(), "frame": frameTime.Seconds(),
	})
}

func (p *page) mode(w http.ResponseWriter, r *http.Request) {
	m := mode(r.PostFormValue("mode"))
	if !slices.Contains(modes, m) {
		http.Error(w, "no such mode", http.StatusBadRequest)
		return
	}
	done(w, p.s.fleet.change(m))
}

func (p *page) invalidate(w http.ResponseWriter, _ *http.Request) {
	done(w, p.s.fleet.invalidate())
}

func done(w http.ResponseWriter, err error) {
	if err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

// draw makes a picture for each frame.
func (p *page) draw(ctx context.Context) {
	tick := time.NewTicker(frameTime)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		raw, err := json.Marshal(p.s.rec.picture())
		if err != nil {
			p.s.fleet.cancel(errors.Join(errors.New("draw the page"), err))
			return
		}
		p.mu.Lock()
		p.last = raw
		close(p.fresh)
		p.fresh = make(chan struct{})
		p.mu.Unlock()
	}
}

// live sends every picture from now on, as server-sent events.
func (p *page) live(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "text/event-stream")
	out := http.NewResponseController(w)
	for {
		p.mu.Lock()
		fresh := p.fresh
		p.mu.Unlock()
		select {
		case <-fresh:
		case <-r.Context().Done():
			return
		case <-p.s.fleet.ctx.Done():
			return
		}
		p.mu.Lock()
		raw := p.last
		p.mu.Unlock()
		_ = out.SetWriteDeadline(time.Now().Add(10 * time.Second)) // of a page that doesn't read
		if _, err := fmt.Fprintf(w, "data: %s\n\n", raw); err != nil || out.Flush() != nil {
			return
		}
	}
}
