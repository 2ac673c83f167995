package singleflight

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold/internal/call"
	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/internal/tests/harness"
)

// tripHook counts round trips of a client to one server.
type tripHook struct {
	mu  sync.Mutex
	all []string // the commands of each
}

func (h *tripHook) DialHook(next redis.DialHook) redis.DialHook { return next }

func (h *tripHook) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error { h.count(cmd); return next(ctx, cmd) }
}

func (h *tripHook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error { h.count(cmds...); return next(ctx, cmds) }
}

func (h *tripHook) count(cmds ...redis.Cmder) {
	h.mu.Lock()
	defer h.mu.Unlock()
	name := cmds[0].Name()
	if args := cmds[0].Args(); strings.HasPrefix(name, "eval") {
		name = call.ScriptName(args[1].(string))
	}
	switch name {
	case "get", "load enter", "load publish", "load invalidate":
	default:
		return // of a new connection, of the clock, or in the background because the server is slow
	}
	h.all = append(h.all, fmt.Sprintf("%s x%d", name, len(cmds)))
}

// since returns the round trips since the last call.
func (h *tripHook) since() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	all := h.all
	h.all = nil
	return all
}

// A DoMany of 500 keys takes one round trip for the values that are there, and if none
// is there one more to learn what to load and one to publish. In a Cluster this holds for each
// node. An Invalidate takes one.
func TestRoundTripsOfManyKeys(t *testing.T) {
	t.Parallel()
	redistest.Matrix(t, func(t *testing.T, target redistest.Target) {
		if target.Kind == redistest.KindMini {
			t.Skip("it needs some ms per script")
		}
		f := newFixture(t, target)
		rdb := f.Connect(&harness.Wire{Patience: clientPatience})
		nodes := map[string]*tripHook{}
		var mu sync.Mutex
		count := func(addr string, c interface{ AddHook(redis.Hook) }) {
			mu.Lock()
			defer mu.Unlock()
			nodes[addr] = &tripHook{}
			c.AddHook(nodes[addr])
		}
		if c, ok := rdb.(*redis.ClusterClient); ok {
			if err := c.ForEachMaster(t.Context(), func(_ context.Context, node *redis.Client) error {
				count(node.Options().Addr, node)
				return nil
			}); err != nil {
				t.Fatal(err)
			}
		} else {
			count("the server", rdb)
		}
		trips := func(what string, most int) {
			t.Helper()
			for node, h := range nodes {
				if all := h.since(); len(all) > most {
					t.Errorf("%s: %d round trips to %s, want %d: %s", what, len(all), node, most, strings.Join(all, ", "))
				}
			}
		}
		g := openOn[string](f, rdb)
		keys := make([]string, 500)
		for i := range keys {
			keys[i] = fmt.Sprint("k", i)
		}
		all := func(what string) {
			t.Helper()
			got, err := g.DoMany(f.Context(), keys, func(_ context.Context, missing []string) (map[string]string, error) {
				found := map[string]string{}
				for _, key := range missing {
					found[key] = strings.Repeat(key, 20)
				}
				return found, nil
			})
			if err != nil || len(got) != len(keys) {
				t.Fatalf("%s: %d values, %.200v", what, len(got), err)
			}
		}
		all("to warm up")
		if err := g.Invalidate(f.Context(), keys...); err != nil {
			t.Fatal(err)
		}
		trips("", 100)
		all("nothing is there")
		trips("nothing is there", 3)
		all("all is there")
		trips("all is there", 1)
		if err := g.Invalidate(f.Context(), keys...); err != nil {
			t.Fatal(err)
		}
		trips("an Invalidate", 1)
	})
}
