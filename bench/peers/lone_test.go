package peers

import (
	"context"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/bench/internal/harness"
)

// A lone caller locks and unlocks a free key, beside two bare calls of a script
// that does nothing. All but rueidislock use the same client.
func BenchmarkLonePair(b *testing.B) { lonePairs(b, harness.Start(b)) }

func lonePairs(b *testing.B, srv *harness.Server) {
	b.Helper()
	rdb := srv.Client()
	ctx := context.Background()
	noop := harness.NoopPair(b, rdb)
	all := []harness.Runner{{Name: "floor", Pair: func() error { return noop(ctx) }}}
	for _, l := range libraries(100 * time.Millisecond) {
		take := l.open(b, srv, rdb)
		key := l.name + "-lone" // they would take each other's key
		all = append(all, harness.Runner{Name: l.name, Pair: func() error { return take(ctx, key, forNothing) }})
	}
	harness.Interleave(b, all...)
}
