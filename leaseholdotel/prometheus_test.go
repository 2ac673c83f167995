package leaseholdotel_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http/httptest"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	exporter "go.opentelemetry.io/otel/exporters/prometheus"
	sdk "go.opentelemetry.io/otel/sdk/metric"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/internal/tests/situations"
	"github.com/leasehold-go/leasehold/leaseholdotel"
	"github.com/leasehold-go/leasehold/leaseholdtest"
)

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
	if _, err := telemetry.Watch(leaseholdtest.Client(t), leaseholdotel.Watched{
		Type: "semaphore", Family: "caps", Limit: 3, Keys: []string{"k"},
	}); err != nil {
		t.Fatal(err)
	}

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
