package leaseholdotel_test

import (
	"context"
	"maps"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"go.opentelemetry.io/otel/attribute"
	sdk "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/internal/tests/harness"
	"github.com/leasehold-go/leasehold/internal/tests/situations"
	"github.com/leasehold-go/leasehold/leaseholdotel"
	"github.com/leasehold-go/leasehold/leaseholdtest"
	"github.com/leasehold-go/leasehold/mutex"
	"github.com/leasehold-go/leasehold/semaphore"
)

// meter is an Observer whose metrics a test reads.
func meter(t *testing.T, cfg leaseholdotel.Config) (*leaseholdotel.Observer, *sdk.ManualReader) {
	t.Helper()
	reader := sdk.NewManualReader()
	cfg.MeterProvider = sdk.NewMeterProvider(sdk.WithReader(reader))
	o := redistest.Must(leaseholdotel.New(cfg))(t)
	return o, reader
}

// read collects: "name{outcome}" to the number of records, or the sum.
func read(t *testing.T, reader *sdk.ManualReader) map[string]float64 {
	t.Helper()
	var rm metricdata.ResourceMetrics
	redistest.WantErr(t, reader.Collect(context.Background(), &rm))
	got := map[string]float64{}
	for _, s := range rm.ScopeMetrics {
		for _, m := range s.Metrics {
			switch data := m.Data.(type) {
			case metricdata.Histogram[float64]:
				for _, p := range data.DataPoints {
					got[name(t, m, p.Attributes.ToSlice())] = float64(p.Count)
				}
			case metricdata.Sum[int64]:
				for _, p := range data.DataPoints {
					got[name(t, m, p.Attributes.ToSlice())] = float64(p.Value)
				}
			case metricdata.Gauge[int64]:
				for _, p := range data.DataPoints {
					got[name(t, m, p.Attributes.ToSlice())] = float64(p.Value)
				}
			}
		}
	}
	return got
}

// name is "instrument[unit]{type outcome}", with "kept" behind the outcome of a grant that took no
// call, and checks the attributes.
func name(t *testing.T, m metricdata.Metrics, all []attribute.KeyValue) string {
	t.Helper()
	values := map[string]string{}
	for _, a := range all {
		values[string(a.Key)] = a.Value.Emit()
	}
	of := strings.Fields(values["leasehold.type"] + " " + values["leasehold.outcome"])
	if values["leasehold.kept"] == "true" {
		of = append(of, "kept")
	}
	n := strings.TrimPrefix(m.Name, "leasehold.") + "[" + m.Unit + "]{" + strings.Join(of, " ") + "}"
	redistest.Check(t, values["leasehold.type"] != "" && values["leasehold.family"] != "", "%s has the attributes %v", n, values)
	for _, known := range []string{"type", "family", "outcome"} {
		delete(values, "leasehold."+known)
	}
	if strings.HasPrefix(m.Name, "leasehold.acquire") {
		delete(values, "leasehold.kept")
	}
	redistest.Check(t, len(values) == 0, "%s has other attributes, too: %v", n, values)
	return n
}

// wants reads, and checks some of it.
func wants(t *testing.T, reader *sdk.ManualReader, want map[string]float64) {
	t.Helper()
	got := read(t, reader)
	for k, v := range want {
		g, ok := got[k]
		redistest.Check(t, ok && g == v, "%s is %v (%v), want %v; all: %v", k, g, ok, v, got)
	}
}

// counts are the instruments that count the events of a kind.
var counts = map[leasehold.EventKind]string{
	leasehold.EventAcquired: "acquire.duration[s]", leasehold.EventHoldEnded: "hold.duration[s]", leasehold.EventLoadEnded: "load.duration[s]",
	leasehold.EventRenewed: "renewals[{renewal}]", leasehold.EventLeaseEnded: "leases.ended[{lease}]", leasehold.EventLateGrant: "grants.late[{grant}]",
	leasehold.EventStaleRelease: "releases.stale[{release}]", leasehold.EventLookup: "cache.lookups[{lookup}]",
	leasehold.EventPublished: "cache.publications[{publication}]", leasehold.EventDecodeFailed: "cache.decode.failures[{entry}]",
	leasehold.EventInvalidated: "cache.invalidations[{key}]",
}

// Whatever an Observer is told is counted, on the instrument of its kind, and nothing else is.
func TestInstrumentsInTheirSituations(t *testing.T) {
	for _, s := range situations.All {
		t.Run(s.Name, func(t *testing.T) {
			o, reader := meter(t, leaseholdotel.Config{})
			var told harness.Told
			s.Run(t, harness.ObserverFunc(func(e leasehold.Event) { told.Observe(e); o.Observe(e) }), nil, func() {})
			want := map[string]float64{}
			for _, e := range told.Events() {
				held := "permit.held[{permit}]{" + e.Type + "}"
				switch {
				case e.Kind == leasehold.EventAcquired && e.Outcome == leasehold.OutcomeGranted:
					want[held] += float64(e.Permits)
				case e.Kind == leasehold.EventHoldEnded:
					want[held] -= float64(e.Permits)
				case e.Kind == leasehold.EventRenewed && e.Outcome == leasehold.OutcomeOK:
					want["renew.margin[s]{"+e.Type+"}"]++
				}
				if name := counts[e.Kind]; name != "" {
					want[name+"{"+strings.TrimSpace(e.Type+" "+e.Outcome)+"}"]++
				}
			}
			got := read(t, reader)
			redistest.Check(t, maps.Equal(got, want), "the instruments say %v, want %v", got, want)
		})
	}
}

// A grant from memory is told apart from one that took a call.
func TestGrantsFromMemoryAreMarked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o, reader := meter(t, leaseholdotel.Config{})
		s := redistest.Must(semaphore.New(leaseholdtest.Client(t), semaphore.Config{Name: "caps", Limit: 2, KeepFor: time.Second, Observer: o}))(t)
		for range 3 {
			l := redistest.Must(s.Acquire(t.Context(), "a"))(t)
			redistest.WantErr(t, l.Release())
		}
		redistest.NoError(t, s.Close(context.Background()))
		wants(t, reader, map[string]float64{
			"acquire.duration[s]{semaphore granted}":      1,
			"acquire.duration[s]{semaphore granted kept}": 2,
			"hold.duration[s]{semaphore released}":        3,
			"permit.held[{permit}]{semaphore}":            0,
		})
	})
}

func TestHeldPermitsAndWatchedKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o, reader := meter(t, leaseholdotel.Config{})
		rdb := leaseholdtest.Client(t)
		s := redistest.Must(semaphore.New(rdb, semaphore.Config{Name: "caps", Limit: 2, Observer: o}))(t)
		stop := redistest.Must(o.Watch(rdb, leaseholdotel.Watched{Type: "semaphore", Family: "caps", Limit: 2, Keys: []string{"a", "idle"}}))(t)
		redistest.Must(s.AcquireN(t.Context(), "a", 2))(t)
		for range 3 {
			go func() { _, _ = s.Acquire(t.Context(), "a") }()
		}
		synctest.Wait()
		time.Sleep(time.Second)
		wants(t, reader, map[string]float64{
			"permit.held[{permit}]{semaphore}":  2,
			"permit.limit[{permit}]{semaphore}": 4,
			"queue.length[{waiter}]{semaphore}": 3,
		})
		stop()
		redistest.Expect(t, read(t, reader)["queue.length[{waiter}]{semaphore}"], 0, "after stop %v wait")
		redistest.NoError(t, s.Close(context.Background()))
		redistest.Expect(t, read(t, reader)["permit.held[{permit}]{semaphore}"], 0, "%v permits are held after Close")
	})
}

// The keys of a family with a Total are other keys in Redis than those of one without.
func TestKeysOfAFamilyWithATotalAreWatched(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o, reader := meter(t, leaseholdotel.Config{})
		rdb := leaseholdtest.Client(t)
		s := redistest.Must(semaphore.New(rdb, semaphore.Config{Name: "caps", Limit: 2, Total: 10}))(t)
		_, err := o.Watch(rdb, leaseholdotel.Watched{Type: "semaphore", Family: "caps", Total: true, Limit: 2, Keys: []string{"a", "b", "idle"}})
		redistest.WantErr(t, err)
		redistest.WantErr(t, s.SetLimit(t.Context(), "b", 1))
		for _, key := range []string{"a", "a", "a", "a", "b", "b"} {
			go func() { _, _ = s.Acquire(t.Context(), key) }()
		}
		synctest.Wait()
		time.Sleep(time.Second)
		wants(t, reader, map[string]float64{
			"permit.limit[{permit}]{semaphore}": 2 + 1 + 2,
			"queue.length[{waiter}]{semaphore}": 2 + 1,
		})
		redistest.NoError(t, s.Close(context.Background()))
		_, err = o.Watch(rdb, leaseholdotel.Watched{Type: "mutex", Family: "caps", Total: true})
		redistest.Check(t, err != nil, "locks with a total are watched")
	})
}

// One server of a quorum shows who waits for its locks.
func TestLocksOfAQuorumAreWatched(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o, reader := meter(t, leaseholdotel.Config{})
		servers := []redis.UniversalClient{leaseholdtest.Client(t), leaseholdtest.Client(t), leaseholdtest.Client(t)}
		m := redistest.Must(mutex.NewQuorum(servers, mutex.Config{Name: "jobs"}))(t)
		redistest.Must(o.Watch(servers[1], leaseholdotel.Watched{Type: "mutex", Family: "jobs", Limit: 1, Keys: []string{"a", "idle"}}))(t)
		redistest.Must(m.Lock(t.Context(), "a"))(t)
		for range 3 {
			go func() { _, _ = m.Lock(t.Context(), "a") }()
		}
		synctest.Wait()
		time.Sleep(time.Second)
		wants(t, reader, map[string]float64{"permit.limit[{permit}]{mutex}": 2, "queue.length[{waiter}]{mutex}": 3})
		redistest.NoError(t, m.Close(context.Background()))
	})
}

// A nil Observer, which Default is after an error, observes nothing.
func TestNilObserver(t *testing.T) {
	var o *leaseholdotel.Observer
	o.Observe(released)
	redistest.WantErr(t, o.CountGuard("f", leasehold.ErrFenced), leasehold.ErrFenced)
	redistest.Must(o.Watch(redistest.MiniClient(t), leaseholdotel.Watched{Type: "mutex", Family: "f", Keys: []string{"k"}}))(t)()
}

func TestGuardedWritesThatAreRefusedAreCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o, reader := meter(t, leaseholdotel.Config{})
		g := redistest.Must(mutex.NewGuard(leaseholdtest.Client(t), mutex.GuardConfig{Name: "orders"}))(t)
		redistest.WantErr(t, o.CountGuard("orders", g.Set(t.Context(), "k", 7, "new", time.Minute)))
		redistest.Check(t, o.CountGuard("orders", g.Set(t.Context(), "k", 6, "old", time.Minute)) != nil, "the guard took a write with an older token")
		redistest.Expect(t, read(t, reader)["guard.refused[{write}]{mutex}"], 1, "%v refused writes")
	})
}
