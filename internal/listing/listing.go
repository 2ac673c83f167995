// Package listing reads what stands in Redis: which families and keys there are,
// how busy each is, and which leases and waiters a key has. It changes nothing
// and runs no script, so that a user with rights to read is enough.
//
// No index is kept: the names of the keys say what belongs to which family, and
// SCAN finds them. What is read is a snapshot that is not atomic: entries come in
// pages, and a lease that is taken or given back meanwhile may be in it or not. A
// lease or a waiter that is there from the beginning to the end is in it, once,
// however often it is renewed meanwhile; one that has expired is not.
package listing

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold/internal/keys"
)

// Lister reads one prefix through one client. It is safe for concurrent use.
type Lister struct {
	rdb     redis.UniversalClient
	cluster *redis.ClusterClient // rdb where it is one, else nil
	prefix  string
}

// New makes a lister; prefix is as in the Configs: "" is "leasehold".
func New(rdb redis.UniversalClient, prefix string) *Lister {
	if prefix == "" {
		prefix = keys.DefaultPrefix
	}
	l := &Lister{rdb: rdb, prefix: prefix}
	l.cluster, _ = rdb.(*redis.ClusterClient)
	return l
}

// Prefix is what the keys begin with that it lists.
func (l *Lister) Prefix() string { return l.prefix }

const (
	scanCount = 1000 // keys that one SCAN looks at
	tries     = 4    // of a call that only reads
)

// retry makes a call again that got no answer: it changes nothing, so that its
// outcome does not depend on how often it ran. ctx ends it.
func retry(ctx context.Context, read func() error) error {
	var err error
	for i := range tries {
		if i > 0 {
			select {
			case <-time.After(time.Duration(25<<i) * time.Millisecond):
			case <-ctx.Done():
				return errors.Join(ctx.Err(), err)
			}
		}
		if err = read(); err == nil || !passing(err) || ctx.Err() != nil {
			return err
		}
	}
	return err
}

// passing says of an error that the same call may do better soon.
func passing(err error) bool {
	var network net.Error
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.As(err, &network) {
		return true
	}
	for _, code := range []string{"LOADING", "CLUSTERDOWN", "TRYAGAIN", "MASTERDOWN", "MOVED", "ASK", "READONLY"} {
		if strings.HasPrefix(err.Error(), code) {
			return true
		}
	}
	return false
}

// eachPrimary runs fn on every server that has keys, in a Cluster on all at the
// same time.
func (l *Lister) eachPrimary(ctx context.Context, fn func(ctx context.Context, rdb redis.Cmdable) error) error {
	if l.cluster != nil {
		return l.cluster.ForEachMaster(ctx, func(ctx context.Context, node *redis.Client) error { return fn(ctx, node) })
	}
	return fn(ctx, l.rdb)
}

// Resources finds all resources of the prefix that have a key in Redis now. It
// is one pass of SCAN over each primary: all keys of the server are looked at,
// which takes about a second for a million of them, in calls of 1000.
func (l *Lister) Resources(ctx context.Context) ([]Resource, error) {
	var mu sync.Mutex
	found := map[string]Resource{}
	err := l.eachPrimary(ctx, func(ctx context.Context, rdb redis.Cmdable) error {
		for cursor := uint64(0); ; {
			var names []string
			var next uint64
			err := retry(ctx, func() (err error) {
				names, next, err = rdb.Scan(ctx, cursor, pattern(l.prefix), scanCount).Result()
				return err
			})
			if err != nil {
				return fmt.Errorf("scan: %w", err)
			}
			mu.Lock()
			for _, name := range names {
				if r, _, ok := parse(l.prefix, name); ok {
					found[r.base] = r
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
	all := make([]Resource, 0, len(found))
	for _, r := range found {
		all = append(all, r)
	}
	Sort(all)
	return all, nil
}

// pipelined sends reads in pipelines of bounded length, each again where it was
// not answered. An error of one command is that command's.
func (l *Lister) pipelined(ctx context.Context, n int, add func(p redis.Pipeliner, i int)) error {
	const most = 200
	for from := 0; from < n; from += most {
		err := retry(ctx, func() error {
			pipe := l.rdb.Pipeline()
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

// clocks reads the clock of each server that has one of the resources, so that
// expiry is judged by the clock that made it.
func (l *Lister) clocks(ctx context.Context, all []Resource) (func(Resource) time.Time, error) {
	if l.cluster == nil {
		now, err := clock(ctx, l.rdb)
		return func(Resource) time.Time { return now }, err
	}
	nodes := make(map[string]string, len(all)) // by resource
	times := map[string]time.Time{}            // by node
	for _, r := range all {
		if _, known := nodes[r.base]; known {
			continue
		}
		err := retry(ctx, func() error {
			node, err := l.cluster.MasterForKey(ctx, r.base)
			if err != nil {
				return err
			}
			name := node.Options().Addr
			nodes[r.base] = name
			if _, known := times[name]; !known {
				times[name], err = node.Time(ctx).Result()
			}
			if err != nil {
				delete(times, name)
			}
			return err
		})
		if err != nil {
			return nil, fmt.Errorf("time: %w", err)
		}
	}
	return func(r Resource) time.Time { return times[nodes[r.base]] }, nil
}

func clock(ctx context.Context, rdb redis.Cmdable) (now time.Time, err error) {
	err = retry(ctx, func() error {
		now, err = rdb.Time(ctx).Result()
		return err
	})
	if err != nil {
		err = fmt.Errorf("time: %w", err)
	}
	return now, err
}
