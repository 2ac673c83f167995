package bench

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/bench/internal/harness"
	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/mutex"
)

// Turns of two processes at a lock on a Cluster, for six keys, by turns: how many times
// as many the quickest key has as the slowest. It shows whether hand-overs depend on
// where a key lies. An op is 60 ms of each key.
func BenchmarkClusterTurns(b *testing.B) {
	for _, v := range redistest.NeedServers(b) {
		b.Run(v.String(), func(b *testing.B) { clusterTurns(b, v) })
	}
}

func clusterTurns(b *testing.B, v redistest.Version) {
	c := redistest.StartPatientCluster(b, v)
	var two [2]*mutex.Mutex
	for i := range two {
		m, err := mutex.New(c.Client(), mutex.Config{Name: "bench"})
		harness.Must(err)
		b.Cleanup(func() { _ = m.Close(context.Background()) })
		two[i] = m
	}
	const keys = 6
	var count [keys]int64
	span := func(key int) {
		var turns atomic.Int64
		ctx, cancel := context.WithTimeout(context.Background(), 60*time.Millisecond)
		defer cancel()
		done := make(chan struct{})
		for _, m := range two {
			go func() {
				defer func() { done <- struct{}{} }()
				for {
					l, err := m.Lock(ctx, fmt.Sprint("k", key))
					if err != nil {
						return
					}
					turns.Add(1)
					harness.Must(l.Unlock())
				}
			}()
		}
		for range two {
			<-done
		}
		count[key] += turns.Load()
	}
	for key := range keys {
		span(key)
	}
	count = [keys]int64{}
	for b.Loop() {
		for key := range keys {
			span(key)
		}
	}
	least, most, sum := count[0], count[0], int64(0)
	for _, n := range count {
		least, most, sum = min(least, n), max(most, n), sum+n
	}
	b.ReportMetric(float64(most)/float64(least), "quickest/slowest-key")
	b.ReportMetric(float64(sum)/(float64(b.N)*keys*0.06), "turns/s")
}
