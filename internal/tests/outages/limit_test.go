package outages

import (
	"context"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/internal/redistest"
)

// The limit goes up and down while all are at work. A process that asks when it is low
// is granted only what fits.
func TestLimitChurns(t *testing.T) {
	t.Parallel()
	srv := redistest.Shared(t, redistest.Newest(t))
	c := newCrowd(t, clientsOf(srv))
	random := rand.New(rand.NewPCG(c.seed, 2))
	type window struct {
		from, to time.Time
		limit    int
	}
	var windows []window
	for range 40 {
		w := window{limit: 1 + random.IntN(limit)}
		if err := c.admin.Set(context.Background(), c.part("sem", key, "limit"), w.limit, time.Minute).Err(); err != nil {
			t.Fatal(err)
		}
		w.from = time.Now()
		time.Sleep(20*time.Millisecond + time.Duration(random.IntN(60))*time.Millisecond)
		w.to = time.Now()
		windows = append(windows, w)
	}
	c.admin.Del(context.Background(), c.part("sem", key, "limit"))
	c.recovered(time.Now())
	c.unharmed()
	judged := 0
	for _, w := range windows {
		for _, p := range c.permits {
			if p.called.Before(w.from) || p.got.After(w.to) {
				continue
			}
			judged++
			held := 1
			for _, other := range c.permits {
				if other.got.Before(p.called) && other.end.After(p.got) {
					held++
				}
			}
			if held > w.limit {
				t.Errorf("%d permits with a limit of %d", held, w.limit)
			}
		}
	}
	t.Logf("%d limits; %d grants asked for and given under one of them", len(windows), judged)
	if judged == 0 {
		t.Error("no grant fell under one limit")
	}
}
