package call

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/leasehold-go/leasehold/internal/redistest"
)

var benchScript = NewScript("bench", `return {1, 2, 3}`)

// BenchmarkCalls is what a call costs: by itself, with a ctx that can end, and of
// many goroutines at the same time.
func BenchmarkCalls(b *testing.B) {
	rdb := redistest.Shared(b, redistest.Newest(b)).Client()
	c := redistest.Must(NewClient(rdb))(b)
	cancellable, cancel := context.WithCancel(context.Background())
	defer cancel()
	do := func(b *testing.B, ctx context.Context, key string) {
		redistest.NoError(b, redistest.ErrorOf(c.Do(ctx, New(benchScript, 1, key, "word", "other"))))
	}
	do(b, context.Background(), "k")
	for name, ctx := range map[string]context.Context{"lone": context.Background(), "lone-cancellable": cancellable} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for range b.N {
				do(b, ctx, "k")
			}
		})
		for _, goroutines := range []int{16, 128} {
			b.Run(fmt.Sprint(name, "-goroutines-", goroutines), func(b *testing.B) {
				b.ReportAllocs()
				var left atomic.Int64
				left.Store(int64(b.N))
				var all sync.WaitGroup
				for i := range goroutines {
					all.Go(func() {
						key := fmt.Sprint("k", i)
						for left.Add(-1) >= 0 {
							do(b, ctx, key)
						}
					})
				}
				all.Wait()
			})
		}
	}
}
