package situations

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/internal/tests/harness"
	"github.com/leasehold-go/leasehold/leaseholdtest"
	"github.com/leasehold-go/leasehold/singleflight"
)

func TestMain(m *testing.M) { redistest.Main(m) }

func TestEventsOfEachSituation(t *testing.T) {
	for _, s := range All {
		t.Run(s.Name, func(t *testing.T) {
			t.Parallel()
			r := &harness.Told{}
			s.Run(t, r, nil, func() {
				got := map[Told]int{}
				held := 0
				for _, e := range r.Events() {
					got[Told{e.Kind, e.Type, e.Outcome}]++
					switch {
					case e.Kind == leasehold.EventAcquired && e.Outcome == leasehold.OutcomeGranted:
						held += e.Permits
					case e.Kind == leasehold.EventHoldEnded:
						held -= e.Permits
					}
				}
				for k, n := range s.Want {
					g := got[k]
					redistest.Check(t, g == n || k.Kind == leasehold.EventRenewed && g >= n, "%d events %+v, want %d; all: %v", g, k, n, got)
				}
				redistest.Expect(t, held, 0, "%d permits are held after the end by the events")
			})
		})
	}
}

func TestEventsTellHowLong(t *testing.T) {
	r := &harness.Told{}
	Leases[0].Run(t, r, nil, func() {
		holds := r.Events(leasehold.EventHoldEnded)
		redistest.Between(t, holds[0].Duration, 3*time.Second, 3100*time.Millisecond, "the first hold of %d permits took %v", holds[0].Permits)
		redistest.Expect(t, holds[0].Permits, 2, "the first hold had %d permits")
		waits := r.Events(leasehold.EventAcquired)
		last := waits[len(waits)-1]
		redistest.Check(t, last.Waited && last.Duration >= 1900*time.Millisecond && last.Context != nil, "the wait of 2 s: %+v", last)
		redistest.Check(t, !waits[0].Waited, "a permit that was free at once: %+v", waits[0])
	})
	r = &harness.Told{}
	Leases[1].Run(t, r, nil, func() {
		for _, e := range r.Events(leasehold.EventRenewed) {
			// After a third of 3 s, with the deadline 60 ms before the server's expiry.
			redistest.Between(t, e.Duration, 1900*time.Millisecond, 2100*time.Millisecond, "the margin of a renewal is %v")
		}
	})
}

// contextChanger gives the loader another ctx.
type contextChanger struct{ harness.Told }

type mark struct{}

func (c *contextChanger) Observe(e leasehold.Event) {
	if e.Kind == leasehold.EventLoadStarted {
		e.Load.Context = context.WithValue(e.Load.Context, mark{}, "mine")
	}
	c.Told.Observe(e)
}

func TestLoaderGetsTheObserversContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &contextChanger{}
		g, err := singleflight.New(leaseholdtest.Client(t), singleflight.Config[string]{
			Name: "pages", TTL: time.Minute, LoadTimeout: time.Second, Observer: c,
		})
		redistest.WantErr(t, err)
		defer func() { _ = g.Close(context.Background()) }()
		_, err = g.Do(t.Context(), "k", func(ctx context.Context) (string, error) {
			redistest.Expect(t, ctx.Value(mark{}), "mine", "the loader's ctx is not derived from the Observer's")
			<-ctx.Done() // LoadTimeout reaches through it
			return "", ctx.Err()
		})
		redistest.Check(t, err != nil, "no error from a load that took too long")
		ends := c.Events(leasehold.EventLoadEnded)
		redistest.Check(t, len(ends) == 1 && ends[0].Load.Context.Value(mark{}) == "mine", "the load's end: %+v", ends)
	})
}

func TestLoggerIsToldAndNamesNoKeyAndNoOwner(t *testing.T) {
	for name, want := range map[string][]string{
		"cut off from Redis for longer than the TTL": {"mutex: a lease ended before it was given back", "mutex: Redis is out of reach", "mutex: Redis is back"},
		"granted after its caller has gone":          {"semaphore: a grant came after its caller had left"},
	} {
		t.Run(name, func(t *testing.T) {
			s := All[slices.IndexFunc(All, func(s Situation) bool { return s.Name == name })]
			var text strings.Builder
			s.Run(t, nil, slog.New(slog.NewTextHandler(&text, nil)), func() {
				redistest.WantText(t, errors.New(text.String()), want...)
				redistest.Check(t, !strings.Contains(text.String(), "/k"), "the key is in:\n%s", text.String())
			})
		})
	}
}
