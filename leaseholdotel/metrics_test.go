package leaseholdotel_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http/httptest"
	"os"
	"regexp"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/redis/go-redis/v9"
	"go.opentelemetry.io/otel/attribute"
	exporter "go.opentelemetry.io/otel/exporters/prometheus"
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

// The limits and the queues of watched keys are added up. A family with a Total has other keys in Redis than one without,
// and one server of a quorum shows who waits for its locks.
func TestHeldPermitsAndWatchedKeys(t *testing.T) {
	for about, c := range map[string]struct {
		watched      leaseholdotel.Watched
		limit, queue float64 // of a key with five callers, and one that is idle
	}{
		"permits":              {leaseholdotel.Watched{Type: "semaphore", Limit: 2}, 2 + 2, 3},
		"permits with a total": {leaseholdotel.Watched{Type: "semaphore", Limit: 2, Total: true}, 1 + 2, 4}, // the limit of the key is set to 1
		"locks of a quorum":    {leaseholdotel.Watched{Type: "mutex", Limit: 1}, 1 + 1, 4},
	} {
		t.Run(about, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				o, reader := meter(t, leaseholdotel.Config{})
				servers := []redis.UniversalClient{leaseholdtest.Client(t), leaseholdtest.Client(t), leaseholdtest.Client(t)}
				c.watched.Family, c.watched.Keys = "f", []string{"a", "idle"}
				stop := redistest.Must(o.Watch(servers[1], c.watched))(t)
				m := redistest.Must(mutex.NewQuorum(servers, mutex.Config{Name: "f", Observer: o}))(t)
				cfg := semaphore.Config{Name: "f", Limit: 2, Observer: o}
				if c.watched.Total {
					cfg.Total = 10
				}
				s := redistest.Must(semaphore.New(servers[1], cfg))(t)
				if c.watched.Total {
					redistest.WantErr(t, s.SetLimit(t.Context(), "a", 1))
				}
				take := func() {
					if c.watched.Type == "mutex" {
						_, _ = m.Lock(t.Context(), "a")
					} else {
						_, _ = s.Acquire(t.Context(), "a")
					}
				}
				take()
				for range 4 {
					go take()
				}
				synctest.Wait()
				time.Sleep(time.Second)
				held, limit, queue := "permit.held[{permit}]{"+c.watched.Type+"}", "permit.limit[{permit}]{"+c.watched.Type+"}", "queue.length[{waiter}]{"+c.watched.Type+"}"
				wants(t, reader, map[string]float64{held: 5 - c.queue, limit: c.limit, queue: c.queue})
				stop()
				redistest.Expect(t, read(t, reader)[queue], 0, "after stop %v wait")
				redistest.NoError(t, s.Close(context.Background()))
				redistest.NoError(t, m.Close(context.Background()))
				redistest.Expect(t, read(t, reader)[held], 0, "%v permits are held after Close")
				c.watched.Type, c.watched.Total = "mutex", true
				redistest.Check(t, redistest.ErrorOf(o.Watch(servers[1], c.watched)) != nil, "locks with a total are watched")
			})
		})
	}
}

// A collection reads some keys at the same time: over a long way it would end before the second one. A hook that
// ends its goroutine is an error.
func TestWatchedKeysOverALongWay(t *testing.T) {
	p := redistest.NewProxy(t, redistest.Mini(t).Addr())
	rdb := p.Client()
	o, reader := meter(t, leaseholdotel.Config{})
	redistest.Must(o.Watch(rdb, leaseholdotel.Watched{Type: "semaphore", Family: "f", Limit: 1, Keys: []string{"a", "b", "c", "d", "e", "f", "g"}}))(t)
	p.Delay(50*time.Millisecond, 50*time.Millisecond)
	_ = read(t, reader) // connects
	wants(t, reader, map[string]float64{"permit.limit[{permit}]{semaphore}": 7})
	w := &harness.Wire{}
	hooked := p.Client()
	hooked.AddHook(w)
	w.Fail(func(string) error { runtime.Goexit(); return nil })
	redistest.Must(o.Watch(hooked, leaseholdotel.Watched{Type: "semaphore", Family: "g", Keys: []string{"a"}}))(t)
	redistest.WantText(t, reader.Collect(t.Context(), new(metricdata.ResourceMetrics)), "a watched key of g: a hook")
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

// The recipe of docs/telemetry.md, in all situations: what Prometheus then scrapes has
// every series that the dashboard and the alert rules ask for.
func TestPrometheusRecipeServesTheDashboardAndTheAlerts(t *testing.T) {
	registry := prometheus.NewRegistry()
	e := redistest.Must(exporter.New(exporter.WithRegisterer(registry)))(t)
	telemetry := redistest.Must(leaseholdotel.New(leaseholdotel.Config{MeterProvider: sdk.NewMeterProvider(sdk.WithReader(e))}))(t)
	for _, s := range situations.All {
		t.Run(s.Name, func(t *testing.T) { s.Run(t, telemetry, nil, func() {}) })
	}
	_ = telemetry.CountGuard("orders", fmt.Errorf("set: %w", leasehold.ErrFenced))
	redistest.Must(telemetry.Watch(leaseholdtest.Client(t), leaseholdotel.Watched{Type: "semaphore", Family: "caps", Limit: 3, Keys: []string{"k"}}))(t)

	reply := httptest.NewRecorder()
	promhttp.HandlerFor(registry, promhttp.HandlerOpts{}).ServeHTTP(reply, httptest.NewRequest("GET", "/metrics", nil))
	scraped, _ := io.ReadAll(reply.Body)

	series := regexp.MustCompile(`leasehold_[a-z_]+`)
	asked := map[string]bool{}
	for _, file := range []string{"../docs/telemetry/dashboard.json", "../docs/telemetry/alerts.yml", "../docs/telemetry.md"} {
		text := redistest.Must(os.ReadFile(file))(t)
		redistest.Check(t, !strings.HasSuffix(file, ".json") || json.Valid(text), "%s is no JSON", file)
		for _, name := range series.FindAllString(string(text), -1) {
			switch name {
			case "leasehold_type", "leasehold_family", "leasehold_outcome": // the labels
			default:
				asked[name] = true
			}
		}
	}
	redistest.Check(t, len(asked) >= 15, "the dashboard and the alerts ask for %d series only: %v", len(asked), asked)
	for name := range asked {
		redistest.Check(t, strings.Contains(string(scraped), "\n"+name+"{"), "no series %s is scraped", name)
	}
	if t.Failed() {
		t.Logf("scraped:\n%s", regexp.MustCompile(`(?m)^# .*\n|^.*_bucket.*\n`).ReplaceAllString(string(scraped), ""))
	}
}
