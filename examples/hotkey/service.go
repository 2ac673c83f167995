package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"sync/atomic"
)

// service is what a server process answers with. The clients ask for the item;
// the rest is for the parent.
type service struct {
	job     job
	caches  map[mode]cache
	current atomic.Pointer[order]
}

func (s *service) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /item", s.item)
	mux.HandleFunc("POST /order", s.obey)
	mux.HandleFunc("POST /invalidate", s.invalidate)
	return mux
}

func (s *service) item(w http.ResponseWriter, r *http.Request) {
	now := *s.current.Load() // this request keeps to it, whatever comes meanwhile
	v, from, err := s.caches[now.Mode].get(r.Context(), now.key(), func(ctx context.Context) (value, error) {
		return s.load(ctx, now.Epoch)
	})
	if err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(reply{Epoch: now.Epoch, Load: v.Load, Source: from})
}

// load asks the origin, which counts.
func (s *service) load(ctx context.Context, epoch int) (v value, err error) {
	url := fmt.Sprintf("%s/?epoch=%d&process=%d", s.job.Origin, epoch, s.job.Process)
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return v, err
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return v, err
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return v, fmt.Errorf("the origin answered %s", res.Status)
	}
	return v, json.NewDecoder(res.Body).Decode(&v)
}

func (s *service) obey(w http.ResponseWriter, r *http.Request) {
	var next order
	if err := json.NewDecoder(r.Body).Decode(&next); err != nil || s.caches[next.Mode] == nil {
		http.Error(w, "no such order", http.StatusBadRequest)
		return
	}
	s.current.Store(&next)
}

func (s *service) invalidate(w http.ResponseWriter, r *http.Request) {
	now := *s.current.Load()
	if err := s.caches[now.Mode].drop(r.Context(), now.key()); err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
	}
}

// key is the hot key.
func (o order) key() string { return fmt.Sprintf("front-page-%d", o.Epoch) }
