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
	mu      sync.Mutex
	all     []string // the commands of each
	renewed bool     // a lease became so old that it was renewed
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
	case "load renew":
		h.renewed = true
		return
	default:
		return // of a new connection, of the clock, or in the background because the server is slow
	}
	h.all = append(h.all, fmt.Sprintf("%s x%d", name, len(cmds)))
}

// since returns the round trips since the last call, and whether a lease was renewed meanwhile.
func (h *tripHook) since() (all []string, renewed bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	all, renewed = h.all, h.renewed
	h.all, h.renewed = nil, false
	return all, renewed
}

// A DoMany of 500 keys takes one round trip for the values that are there, and if none
// is there one more to learn what to load and one to publish. In a Cluster this holds for each
// node. An Invalidate takes one. On a busy machine the leases of the loads may become so old that
// they are renewed. Then calls wait behind the renewals, so such a round does not count.
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
		// trips returns what was too much, and whether the round counts.
		trips := func(what string, most int) (problems []string, counts bool) {
			counts = true
			for node, h := range nodes {
				all, renewed := h.since()
				counts = counts && !renewed
				if len(all) > most {
					problems = append(problems, fmt.Sprintf("%s: %d round trips to %s, want %d: %s", what, len(all), node, most, strings.Join(all, ", ")))
				}
			}
			return problems, counts
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
			redistest.CheckNow(t, err == nil && len(got) == len(keys), "%s: %d values, %.200v", what, len(got), err)
		}
		invalidate := func() {
			t.Helper()
			redistest.WantErr(t, g.Invalidate(f.Context(), keys...))
		}
		all("to warm up")
		const rounds = 40
		for range rounds {
			invalidate()
			trips("", 0)
			counts := true
			var problems []string
			judge := func(what string, most int) {
				found, undisturbed := trips(what, most)
				problems, counts = append(problems, found...), counts && undisturbed
			}
			all("nothing is there")
			judge("nothing is there", 3)
			all("all is there")
			judge("all is there", 1)
			invalidate()
			judge("an Invalidate", 1)
			if !counts && len(problems) > 0 {
				continue
			}
			for _, problem := range problems {
				t.Error(problem)
			}
			return
		}
		t.Fatalf("leases were renewed in each of %d rounds", rounds)
	})
}
