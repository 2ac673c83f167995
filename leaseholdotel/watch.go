package leaseholdotel

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	"go.opentelemetry.io/otel/metric"

	"github.com/leasehold-go/leasehold/internal/keys"
	"github.com/leasehold-go/leasehold/internal/listing"
)

// Watched names the keys of one family that [Observer.Watch] reads.
type Watched struct {
	Type     string // "semaphore" or "mutex", required; a quorum is watched by the client of one of its servers
	Family   string // Config.Name, required
	Prefix   string // Config.Prefix
	HashKeys bool   // Config.HashKeys
	Total    bool   // the family has a Config.Total; its keys in Redis have other names then
	Limit    int    // reported for a key that is not in use, because Redis knows no limit of it then
	Keys     []string
}

// readsAtOnce is how many keys are read at the same time. One after the other, two would not fit into a collection's 3 s
// over a way of 300 ms.
const readsAtOnce = 8

var errHook = errors.New("a hook of the client ended its goroutine")

// watch is one call of Watch.
type watch struct {
	Watched
	lister    *listing.Lister
	resources []listing.Resource
}

// Watch reads the keys of a family at each collection of the metrics, until stop is called. It feeds the gauges
// leasehold.permit.limit and leasehold.queue.length. They show the sum over the keys, because an attribute for each key
// would have no bound. One process of a fleet is enough to watch a family. rdb only needs the rights to read.
//
// Each collection costs five or more round trips per key, reads eight keys at the same time, and ends within 3 s plus the
// client's ReadTimeout. If a key cannot be read, it is left out and the collection reports an error. For
// a family with a Total, each watched key costs reading the leases of all keys of the family.
func (o *Observer) Watch(rdb redis.UniversalClient, w Watched) (stop func(), err error) {
	kinds, ok := map[string][]keys.Kind{"semaphore": {keys.Semaphore}, "mutex": {keys.Mutex, keys.Quorum}}[w.Type]
	if !ok {
		return nil, fmt.Errorf("leaseholdotel: Type is %q; want \"semaphore\" or \"mutex\"", w.Type)
	}
	if w.Total && w.Type != "semaphore" {
		return nil, fmt.Errorf("leaseholdotel: Total is set, and Type is %q; only a semaphore has a Total", w.Type)
	}
	one := &watch{Watched: w, lister: listing.New(rdb, w.Prefix)}
	for _, key := range w.Keys {
		f := keys.Family{Prefix: w.Prefix, Kind: kinds[0], Name: w.Family}
		if _, err := f.Resource(key); err != nil {
			return nil, fmt.Errorf("leaseholdotel: %w", err)
		}
		for _, kind := range kinds {
			one.resources = append(one.resources, listing.Of(w.Prefix, kind, w.Family, keys.Shown(key, w.HashKeys), w.Total))
		}
	}
	if o == nil {
		return func() {}, nil
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.watched[one] = struct{}{}
	return func() {
		o.mu.Lock()
		defer o.mu.Unlock()
		delete(o.watched, one)
	}, nil
}

// collect reports the gauges, and records the events that were kept until now. The SDK calls
// it before it reads the instruments.
func (o *Observer) collect(ctx context.Context, to metric.Observer) error {
	o.batch.recordAll()
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	o.mu.Lock()
	var all []*watch
	for w := range o.watched {
		all = append(all, w)
	}
	o.mu.Unlock()
	type sum struct{ limit, waiting int64 }
	sums := map[setKey]sum{}
	var errs []error
	var mu sync.Mutex // guards both
	var reads sync.WaitGroup
	free := make(chan struct{}, readsAtOnce)
	for _, w := range all {
		k := setKey{typ: w.Type, family: o.sets.familyOf(w.Family)}
		for _, r := range w.resources {
			free <- struct{}{}
			reads.Go(func() {
				state, err := listing.State{}, errHook // stays if a hook ends the goroutine
				defer func() {
					<-free
					mu.Lock()
					defer mu.Unlock()
					if err != nil && !errors.Is(err, listing.ErrTooMany) {
						errs = append(errs, fmt.Errorf("leaseholdotel: a watched key of %s: %w", k.family, err))
						return
					}
					limit := cmp.Or(state.Limit, w.Limit)
					if r.Kind == keys.Quorum {
						limit = 0 // it was counted with the key of a lock on one server
					}
					s := sums[k]
					sums[k] = sum{s.limit + int64(limit), s.waiting + int64(len(state.Waiters))}
				}()
				state, err = w.lister.State(ctx, r, listing.Bounds{})
			})
		}
	}
	reads.Wait()
	for k, s := range sums {
		of := metric.WithAttributes(attrType.String(k.typ), attrFamily.String(k.family))
		to.ObserveInt64(o.limit, s.limit, of)
		to.ObserveInt64(o.queue, s.waiting, of)
	}
	return errors.Join(errs...)
}
