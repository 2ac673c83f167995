package main

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold/singleflight"
)

// value is what is cached: what the origin made, with the number of its load.
type value struct {
	Load int64  `json:"load"`
	Text string `json:"text"`
}

type loader func(ctx context.Context) (value, error)

// cache is one of the ways to answer a request.
type cache interface {
	get(ctx context.Context, key string, load loader) (value, source, error)
	drop(ctx context.Context, key string) error
	close(ctx context.Context) error
}

// plain is the cache that everybody writes first: nothing keeps two requests, of
// one process or of two, from finding nothing at the same time.
type plain struct {
	rdb  *redis.Client
	name string
	ttl  time.Duration
}

func (p plain) get(ctx context.Context, key string, load loader) (v value, from source, err error) {
	raw, err := p.rdb.Get(ctx, p.name+":"+key).Bytes()
	switch {
	case err == nil:
		return v, fromCache, json.Unmarshal(raw, &v)
	case !errors.Is(err, redis.Nil):
		return v, fromCache, err
	}
	if v, err = load(ctx); err != nil {
		return v, fromLoad, err
	}
	if raw, err = json.Marshal(v); err != nil {
		return v, fromLoad, err
	}
	return v, fromLoad, p.rdb.Set(ctx, p.name+":"+key, raw, p.ttl).Err()
}

func (p plain) drop(ctx context.Context, key string) error {
	return p.rdb.Del(ctx, p.name+":"+key).Err()
}

func (p plain) close(context.Context) error { return nil }

// shielded is the cache with singleflight.
type shielded struct{ group *singleflight.Group[value] }

// newShielded: without jitter and early refreshes, which are good for real
// caches, every expiry comes exactly when the TTL is over, and can be counted.
func newShielded(rdb *redis.Client, name string, ttl, staleFor time.Duration) (shielded, error) {
	group, err := singleflight.New(rdb, singleflight.Config[value]{
		Name:     name,
		TTL:      ttl,
		StaleFor: staleFor,
		Jitter:   -1,
	})
	return shielded{group}, err
}

func (s shielded) get(ctx context.Context, key string, load loader) (value, source, error) {
	r, err := s.group.Fetch(ctx, key, load)
	return r.Value, map[singleflight.Source]source{
		singleflight.Cached: fromCache,
		singleflight.Stale:  fromStale,
		singleflight.Shared: fromOther,
		singleflight.Loaded: fromLoad,
	}[r.Source], err
}

func (s shielded) drop(ctx context.Context, key string) error { return s.group.Invalidate(ctx, key) }

func (s shielded) close(ctx context.Context) error { return s.group.Shutdown(ctx) }

// caches makes one for each mode.
func caches(rdb *redis.Client, name string, ttl, staleFor time.Duration) (map[mode]cache, error) {
	calm, err := newShielded(rdb, name, ttl, 0)
	if err != nil {
		return nil, err
	}
	stale, err := newShielded(rdb, name, ttl, staleFor)
	if err != nil {
		return nil, err
	}
	return map[mode]cache{off: plain{rdb, name, ttl}, on: calm, onStale: stale}, nil
}
