// Package page is a page for a browser that shows which leases a fleet keeps in
// Redis: families and keys with their use and their queues, holders and waiters,
// cached values and loads, live. It is an http.Handler: `leasehold serve` serves
// it, and a service can mount it beside its own pages:
//
//	p, err := page.New(rdb, page.Options{})
//	…
//	mux.Handle("/leases/", http.StripPrefix("/leases", p))
//
// It only reads, unless Options.Changes says otherwise. However many browsers watch,
// it looks for keys once a minute, and polls what they show once a second; while
// nobody watches it asks nothing.
package page

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"embed"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/cmd/leasehold/internal/changes"
	"github.com/leasehold-go/leasehold/cmd/leasehold/internal/text"
	"github.com/leasehold-go/leasehold/internal/keys"
	"github.com/leasehold-go/leasehold/internal/listing"
)

//go:embed web
var web embed.FS

// Options say what the page shows and to whom. The zero value shows everything of
// the default prefix to everybody who can reach the handler.
type Options struct {
	// Prefix is what the keys in Redis begin with; "" is "leasehold".
	Prefix string
	// Token is asked for before anything is shown, 16 bytes or more. "": nobody is
	// asked. A handler that is mounted behind a login of its own needs none.
	Token string
	// Hosts are the names under which a browser may ask for the page; another one is refused. nil: any. It keeps
	// pages of others, whose names are made to point to this machine, from reading this one.
	Hosts []string
	// Changes lets everybody who may see the page set limits and totals and revoke leases, too. It needs a Token,
	// or a login of the service that mounts the page: see Trusted.
	Changes bool
	// Trusted says that whoever reaches the handler was let in by a login of the
	// service that mounts it, so that Changes needs no Token.
	Trusted bool
}

const minToken = 16

// Page is the handler.
type Page struct {
	rdb    redis.UniversalClient
	opt    Options
	hub    *hub
	proof  string // what the cookie of a browser that gave the token holds
	routes http.Handler
}

// New makes a page. It sends nothing before somebody watches. Close ends what browsers watch.
func New(rdb redis.UniversalClient, opt Options) (*Page, error) {
	if opt.Token != "" && len(opt.Token) < minToken {
		return nil, fmt.Errorf("leasehold: page: Token has %d bytes; want at least %d", len(opt.Token), minToken)
	}
	if opt.Changes && opt.Token == "" && !opt.Trusted {
		return nil, errors.New("leasehold: page: Changes without a Token; want one, or Trusted behind a login")
	}
	sum := sha256.Sum256([]byte("leasehold page\x00" + opt.Token))
	p := &Page{rdb: rdb, opt: opt, hub: newHub(rdb, opt), proof: hex.EncodeToString(sum[:])}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", p.index)
	for _, name := range []string{"app.js", "chart.js", "login.js", "style.css", "icon.svg"} {
		mux.HandleFunc("GET /"+name, func(w http.ResponseWriter, r *http.Request) { http.ServeFileFS(w, r, web, "web/"+name) })
	}
	mux.HandleFunc("POST /login", p.login)
	mux.HandleFunc("GET /events", p.events)
	if opt.Changes {
		mux.HandleFunc("POST /limit", p.limit)
		mux.HandleFunc("POST /revoke", p.revoke)
	}
	p.routes = http.NewCrossOriginProtection().Handler(mux)
	return p, nil
}

// Close ends all that browsers watch. The client stays the caller's.
func (p *Page) Close() { p.hub.close() }

// policy lets the page load what it brings itself, and nothing else; nobody may put it into a frame.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
	"form-action 'self'; base-uri 'none'; frame-ancestors 'none'"

// ServeHTTP answers for the page and what belongs to it.
func (p *Page) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Content-Security-Policy", policy)
	h.Set("X-Frame-Options", "DENY")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Cache-Control", "no-store")
	if !p.expected(r.Host) {
		http.Error(w, "this page is not served under that name", http.StatusMisdirectedRequest)
		return
	}
	if r.Method == http.MethodPost {
		// What browsers send is short. A server that this page is mounted in may have no bound.
		_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(bodyBound))
	}
	p.routes.ServeHTTP(w, r)
}

const bodyBound = 5 * time.Second

func (p *Page) expected(host string) bool {
	if p.opt.Hosts == nil {
		return true
	}
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	return slices.Contains(p.opt.Hosts, strings.ToLower(strings.Trim(host, "[]")))
}

const cookie = "leasehold-page"

// admitted says whether the browser, or a program with the token as a bearer, may see.
func (p *Page) admitted(r *http.Request) bool {
	if p.opt.Token == "" {
		return true
	}
	if token, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer "); ok && p.is(token) {
		return true
	}
	c, err := r.Cookie(cookie)
	return err == nil && subtle.ConstantTimeCompare([]byte(c.Value), []byte(p.proof)) == 1
}

// is compares a token in a time that does not depend on it.
func (p *Page) is(token string) bool {
	given, want := sha256.Sum256([]byte(token)), sha256.Sum256([]byte(p.opt.Token))
	return subtle.ConstantTimeCompare(given[:], want[:]) == 1
}

func (p *Page) index(w http.ResponseWriter, r *http.Request) {
	name := "web/page.html"
	if !p.admitted(r) {
		name = "web/login.html"
	}
	http.ServeFileFS(w, r, web, name)
}

// login takes the token and gives a cookie for it. A wrong one costs a moment.
func (p *Page) login(w http.ResponseWriter, r *http.Request) {
	r.Body = http.MaxBytesReader(w, r.Body, 4096)
	if !p.is(r.PostFormValue("token")) {
		time.Sleep(300 * time.Millisecond)
		http.Error(w, "that is not the token", http.StatusForbidden)
		return
	}
	// Without a path the cookie is for where the page is mounted.
	http.SetCookie(w, &http.Cookie{Name: cookie, Value: p.proof, HttpOnly: true, Secure: r.TLS != nil, SameSite: http.SameSiteStrictMode})
	w.Header().Set("Location", "./")
	w.WriteHeader(http.StatusSeeOther)
}

// events is what a browser watches: a state as soon as there is one, and then each that differs.
func (p *Page) events(w http.ResponseWriter, r *http.Request) {
	if !p.admitted(r) {
		http.Error(w, "a token is needed", http.StatusUnauthorized)
		return
	}
	v, err := parseView(r.URL.Query())
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	w.Header().Set("X-Accel-Buffering", "no")
	if r.Method == http.MethodHead { // which nothing would end
		return
	}
	states, leave, err := p.hub.join(v)
	if err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	defer leave()
	w.Header().Set("Content-Type", "text/event-stream")
	out := http.NewResponseController(w)
	for {
		select {
		case state, ok := <-states:
			if !ok {
				return
			}
			// A browser that does not read must not hold anything up for ever.
			_ = out.SetWriteDeadline(time.Now().Add(20 * time.Second))
			if _, err := fmt.Fprintf(w, "data: %s\n\n", state); err != nil || out.Flush() != nil {
				return
			}
		case <-r.Context().Done():
			return
		}
	}
}

// changed is what the two changes have in common: the rights that they need, the key,
// and how the outcome is told. A page of another site does not get here: see routes.
func (p *Page) changed(w http.ResponseWriter, r *http.Request, change func(ctx context.Context, of listing.Resource) error) {
	if !p.admitted(r) {
		http.Error(w, "a token is needed", http.StatusUnauthorized)
		return
	}
	r.Body = http.MaxBytesReader(w, r.Body, 4096)
	found, ok := p.hub.names.Load(r.PostFormValue("key"))
	if !ok {
		http.Error(w, "no such key is known", http.StatusNotFound)
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), 10*time.Second)
	defer cancel()
	err := change(ctx, found.(listing.Resource))
	switch {
	case err == nil:
		w.WriteHeader(http.StatusNoContent)
	case errors.Is(err, leasehold.ErrInvalid):
		http.Error(w, text.Safe(err.Error()), http.StatusBadRequest)
	case errors.Is(err, leasehold.ErrNoLease):
		http.Error(w, "there is no such lease any more", http.StatusNotFound)
	case redis.IsPermissionError(err):
		http.Error(w, "the user of the page lacks a right, and nothing was done: "+text.Safe(err.Error()), http.StatusForbidden)
	default:
		http.Error(w, "it may or may not have been done: "+text.Safe(err.Error()), http.StatusBadGateway)
	}
}

// limit sets the limit of a key, or the total of a family.
func (p *Page) limit(w http.ResponseWriter, r *http.Request) {
	p.changed(w, r, func(ctx context.Context, of listing.Resource) error {
		n, err := strconv.Atoi(r.PostFormValue("limit"))
		if err != nil {
			return fmt.Errorf("%w: the limit is no number", leasehold.ErrInvalid)
		}
		if of.Kind != keys.Semaphore || of.Whole {
			return fmt.Errorf("%w: only permits have a limit to set", leasehold.ErrInvalid)
		}
		return changes.Set(ctx, p.rdb, p.opt.Prefix, of, n)
	})
}

// revoke takes a lease or a waiter's place away. In the details of a family with a
// total the key is that of the lease.
func (p *Page) revoke(w http.ResponseWriter, r *http.Request) {
	p.changed(w, r, func(ctx context.Context, of listing.Resource) error {
		if of.Kind == keys.Guard || of.Whole {
			return fmt.Errorf("%w: there is nothing to revoke", leasehold.ErrInvalid)
		}
		id := r.PostFormValue("id")
		if of.HasTotal && of.Key == "" {
			var err error
			if of.Key, err = p.tenant(ctx, of, id); err != nil {
				return err
			}
		}
		return changes.Revoke(ctx, p.rdb, p.opt.Prefix, of, id, r.PostFormValue("reason"))
	})
}

// tenant is the key of a lease or a waiter of a family with a total.
func (p *Page) tenant(ctx context.Context, of listing.Resource, id string) (string, error) {
	s, err := p.hub.keys.List.State(ctx, of, listing.Bounds{})
	if err != nil && !errors.Is(err, listing.ErrTooMany) {
		return "", err
	}
	for _, h := range s.Holders {
		if h.ID == id {
			return h.Tenant, nil
		}
	}
	for _, w := range s.Waiters {
		if w.ID == id {
			return w.Tenant, nil
		}
	}
	return "", leasehold.ErrNoLease
}
