// Package listing reads the state of leases in Redis: which families and keys there are, how
// busy each is, and which leases and waiters a key has. It changes nothing and runs no script,
// so a user with only the rights to read is enough.
//
// There is no index. The name of a Redis key says which family it belongs to, and SCAN finds
// the keys. What the package returns is a snapshot that is not atomic, because entries are
// read in pages. A lease that is taken or given back meanwhile may or may not be in it. A
// lease or a waiter that is there for the whole time is in it once, however often it is
// renewed meanwhile. Expired ones are not in it.
package listing

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold/internal/call"
	"github.com/leasehold-go/leasehold/internal/keys"
)

// Lister reads the keys of one prefix through one client. It is safe for concurrent use.
type Lister struct {
	rdb      redis.UniversalClient
	cluster  cluster // nil if rdb is no Cluster client and wraps none
	replicas bool    // rdb reads from replicas
	prefix   string
}

// New returns a Lister. prefix is as in the Configs: "" means "leasehold".
func New(rdb redis.UniversalClient, prefix string) *Lister {
	l := &Lister{rdb: rdb, prefix: cmp.Or(prefix, keys.DefaultPrefix), cluster: clusterOf(rdb)}
	if c, err := call.NewClient(rdb); err == nil && l.cluster != nil {
		l.replicas = c.ReadsFromReplicas()
	}
	return l
}

const (
	scanCount = 1000 // keys that one SCAN looks at
	tries     = 4    // of each call
)

// retry repeats a call that got no answer. This is safe because a read changes nothing. ctx
// ends the repetition.
func (l *Lister) retry(ctx context.Context, read func() error) error {
	var err error
	for i := range tries {
		if i > 0 {
			select {
			case <-time.After(time.Duration(25<<i) * time.Millisecond):
			case <-ctx.Done():
				return errors.Join(ctx.Err(), err)
			}
		}
		if err = contained(read); err == nil || !passing(err) || ctx.Err() != nil {
			return err
		}
		if l.cluster != nil { // the server may not be the primary any more
			l.cluster.ReloadState(ctx)
		}
	}
	return err
}

// contained returns a panic of read, which is one of the client's hooks, as an error.
func contained(read func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("the client panicked: %v", p)
		}
	}()
	return call.Harmless(read())
}

// passing reports whether the same call may soon succeed after this error.
func passing(err error) bool {
	return err != errNoReply && call.Classify(err) != call.Refused && !call.Lasting(err)
}

// eachPrimary runs fn on every server that has keys. In a Cluster it runs on all of them at
// the same time.
func (l *Lister) eachPrimary(ctx context.Context, fn func(ctx context.Context, rdb redis.Cmdable) error) error {
	if l.cluster != nil {
		return l.cluster.ForEachMaster(ctx, func(ctx context.Context, node *redis.Client) error { return fn(ctx, node) })
	}
	return fn(ctx, l.rdb)
}

// ofAllSchemas are the parts that all schemas of a cached value share. They do not tell which of them exist.
var ofAllSchemas = []string{"schemas", "near", "revoked", "audit"}

// Resources returns all resources of the prefix that have a key in Redis now. It makes one
// pass of SCAN over each primary, in calls of 1000 keys. It looks at all keys of the server,
// which takes about a second for a million keys.
func (l *Lister) Resources(ctx context.Context) ([]Resource, error) {
	var mu sync.Mutex
	found := map[string]Resource{}
	err := l.eachPrimary(ctx, func(ctx context.Context, rdb redis.Cmdable) error {
		for cursor := uint64(0); ; {
			var names []string
			var next uint64
			err := l.retry(ctx, func() (err error) {
				names, next, err = rdb.Scan(ctx, cursor, pattern(l.prefix), scanCount).Result()
				names, err = replied(names, err)
				return err
			})
			if err != nil {
				return fmt.Errorf("scan: %w", err)
			}
			mu.Lock()
			for _, name := range names {
				if r, part, ok := parse(l.prefix, name); ok && (r.Kind != keys.Flight || !slices.Contains(ofAllSchemas, part)) {
					found[r.Part("")] = r
				}
			}
			mu.Unlock()
			if cursor = next; cursor == 0 {
				return nil
			}
		}
	})
	if err != nil {
		return nil, err
	}
	return slices.SortedFunc(maps.Values(found), Compare), nil
}

// pipelined sends n reads in pipelines of bounded length, and repeats a pipeline that got no
// answer. Other errors stay in the commands that they belong to.
func (l *Lister) pipelined(ctx context.Context, n int, add func(p redis.Pipeliner, i int)) error {
	const most = 200
	for from := 0; from < n; from += most {
		err := l.retry(ctx, func() error {
			pipe := l.rdb.Pipeline()
			if l.replicas {
				pipe.Time(ctx) // no reading command, so go-redis asks the primaries for the whole pipeline
			}
			for i := from; i < min(n, from+most); i++ {
				add(pipe, i)
			}
			cmds, _ := pipe.Exec(ctx)
			for _, cmd := range cmds {
				if err := cmd.Err(); err != nil && passing(err) {
					return err
				}
			}
			return ctx.Err()
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// clocks reads the clock of each server that has one of the resources, so that an expiry is
// compared with the clock that set it.
func (l *Lister) clocks(ctx context.Context, all []Resource) (func(Resource) time.Time, error) {
	nodes := make(map[string]string, len(all)) // by resource; "": the only server
	times := map[string]time.Time{}            // by node
	if l.cluster == nil {
		all = []Resource{{}} // a single server is asked also if it has none, so that an outage is noticed
	}
	for _, r := range all {
		if _, known := nodes[r.base]; known {
			continue
		}
		err := l.retry(ctx, func() error {
			node, name := redis.Cmdable(l.rdb), ""
			if l.cluster != nil {
				primary, err := l.cluster.MasterForKey(ctx, r.base)
				if err != nil {
					return err
				}
				node, name = primary, primary.Options().Addr
			}
			nodes[r.base] = name
			if _, known := times[name]; known {
				return nil
			}
			now, err := node.Time(ctx).Result()
			if err == nil && now.IsZero() {
				err = errNoReply
			}
			if err == nil {
				times[name] = now
			}
			return err
		})
		if err != nil {
			return nil, fmt.Errorf("time: %w", err)
		}
	}
	return func(r Resource) time.Time { return times[nodes[r.base]] }, nil
}

// errNoReply is the error of a command that a hook of the client has swallowed.
var errNoReply = errors.New("the client returned without a reply")

// replied returns what a command returned, or errNoReply: a reply makes a list, though it may be empty.
func replied[T any](list []T, err error) ([]T, error) {
	if err == nil && list == nil {
		err = errNoReply
	}
	return list, err
}
