package leaseholdotel_test

import (
	"context"
	"encoding/json"
	"fmt"
	"html"
	"math"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	exporter "go.opentelemetry.io/otel/exporters/prometheus"
	sdk "go.opentelemetry.io/otel/sdk/metric"

	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/leaseholdotel"
	"github.com/leasehold-go/leasehold/mutex"
	"github.com/leasehold-go/leasehold/semaphore"
	"github.com/leasehold-go/leasehold/singleflight"
)

// TestDashboardPicture draws the panels of docs/telemetry/dashboard.json: a fleet works
// for a minute and a half, a Prometheus scrapes it and answers the panels' queries.
// LEASEHOLD_PROMETHEUS is the program, LEASEHOLD_SCREENSHOTS the folder.
func TestDashboardPicture(t *testing.T) {
	dir, program := os.Getenv("LEASEHOLD_SCREENSHOTS"), os.Getenv("LEASEHOLD_PROMETHEUS")
	if dir == "" || program == "" {
		t.Skip("set LEASEHOLD_SCREENSHOTS to a folder and LEASEHOLD_PROMETHEUS to the program")
	}
	registry := prometheus.NewRegistry()
	e, err := exporter.New(exporter.WithRegisterer(registry))
	if err != nil {
		t.Fatal(err)
	}
	telemetry, err := leaseholdotel.New(leaseholdotel.Config{MeterProvider: sdk.NewMeterProvider(sdk.WithReader(e))})
	if err != nil {
		t.Fatal(err)
	}
	metrics := httptest.NewServer(promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	defer metrics.Close()
	api := startPrometheus(t, program, metrics.Listener.Addr().String())

	began := time.Now()
	fleetAtWork(t, telemetry, 90*time.Second)
	text, err := os.ReadFile("../docs/telemetry/dashboard.json")
	if err != nil {
		t.Fatal(err)
	}
	var d dashboard
	if err := json.Unmarshal(text, &d); err != nil {
		t.Fatal(err)
	}
	picture := d.draw(t, api, began.Add(15*time.Second), time.Now())
	if err := os.WriteFile(filepath.Join(dir, "dashboard.svg"), []byte(picture), 0o644); err != nil {
		t.Fatal(err)
	}
}

// startPrometheus scrapes target once a second. It returns the address of its API.
func startPrometheus(t *testing.T, program, target string) (api string) {
	t.Helper()
	dir := t.TempDir()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	_ = l.Close()
	config := "global: {scrape_interval: 1s}\nscrape_configs: [{job_name: fleet, static_configs: [{targets: ['" + target + "']}]}]\n"
	if err := os.WriteFile(filepath.Join(dir, "prometheus.yml"), []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(program, "--config.file="+filepath.Join(dir, "prometheus.yml"), "--storage.tsdb.path="+filepath.Join(dir, "data"), "--web.listen-address="+address)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	redistest.Eventually(t, "Prometheus", func() bool {
		r, err := http.Get("http://" + address + "/-/ready")
		if err == nil {
			_ = r.Body.Close()
		}
		return err == nil && r.StatusCode == http.StatusOK
	})
	return "http://" + address + "/api/v1/query_range"
}

// fleetAtWork uses all three packages; in the middle third there is three times as
// much to do, and holders are revoked.
func fleetAtWork(t *testing.T, telemetry *leaseholdotel.Observer, length time.Duration) {
	t.Helper()
	rdb := redistest.StartServer(t, redistest.Newest(t)).Client()
	ctx, cancel := context.WithTimeout(t.Context(), length)
	defer cancel()
	exports, err := semaphore.New(rdb, semaphore.Config{Name: "exports", Limit: 4, TTL: time.Second, Observer: telemetry})
	if err != nil {
		t.Fatal(err)
	}
	jobs, err := mutex.New(rdb, mutex.Config{Name: "jobs", TTL: time.Second, Observer: telemetry})
	if err != nil {
		t.Fatal(err)
	}
	pages, err := singleflight.New(rdb, singleflight.Config[string]{Name: "pages", TTL: 2 * time.Second, Observer: telemetry})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		_, _, _ = exports.Close(t.Context()), jobs.Close(t.Context()), pages.Close(t.Context())
	}()
	watching, err := telemetry.Watch(rdb, leaseholdotel.Watched{Type: "semaphore", Family: "exports", Limit: 4, Keys: []string{"acme", "globex"}})
	if err != nil {
		t.Fatal(err)
	}
	defer watching()
	pause := func(ctx context.Context, most time.Duration) {
		select {
		case <-ctx.Done():
		case <-time.After(rand.N(most) + time.Millisecond):
		}
	}
	began := time.Now()
	busy := func() bool { return time.Since(began) > length/3 && time.Since(began) < 2*length/3 }
	var all sync.WaitGroup
	worker := func(always bool, work func(ctx context.Context)) {
		all.Go(func() {
			for ctx.Err() == nil {
				if always || busy() {
					work(ctx)
				}
				pause(ctx, 200*time.Millisecond)
			}
		})
	}
	for i := range 18 {
		worker(i < 6, func(ctx context.Context) {
			waiting, cancel := context.WithTimeout(ctx, 800*time.Millisecond)
			defer cancel()
			_ = exports.Do(waiting, []string{"acme", "globex"}[i%2], func(ctx context.Context) error { pause(ctx, 400*time.Millisecond); return nil })
		})
	}
	for i := range 9 {
		worker(i < 3, func(ctx context.Context) {
			_ = jobs.Do(ctx, fmt.Sprint("job-", i%3), func(ctx context.Context, _ uint64) error { pause(ctx, 1500*time.Millisecond); return nil })
		})
	}
	for i := range 24 {
		worker(i < 8, func(ctx context.Context) {
			_, _ = pages.Do(ctx, fmt.Sprint("page-", rand.N(20)), func(ctx context.Context) (string, error) { pause(ctx, 80*time.Millisecond); return "text", nil })
		})
	}
	worker(true, func(ctx context.Context) {
		_ = pages.Invalidate(ctx, fmt.Sprint("page-", rand.N(20)))
		pause(ctx, time.Second)
		if state, err := jobs.Inspect(ctx, "job-1"); busy() && err == nil && state.Held {
			_ = jobs.Revoke(ctx, "job-1", state.Holder.ID, "for the picture")
		}
	})
	all.Wait()
}

// dashboard is what the picture takes from Grafana's model.
type dashboard struct {
	Title  string
	Panels []struct {
		Title       string
		GridPos     struct{ H, W, X, Y int }
		FieldConfig struct{ Defaults struct{ Unit string } }
		Targets     []struct{ Expr, LegendFormat string }
	}
}

type curve struct {
	name   string
	points [][2]float64 // seconds and value
}

// query asks Prometheus as Grafana does.
func query(t *testing.T, api, expr, legend string, from, to time.Time) (curves []curve) {
	t.Helper()
	expr = strings.NewReplacer("$__rate_interval", "10s", "$family", ".*").Replace(expr)
	r, err := http.Get(api + "?" + url.Values{"query": {expr}, "step": {"1"}, "start": {fmt.Sprint(from.Unix())}, "end": {fmt.Sprint(to.Unix())}}.Encode())
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	var reply struct {
		Error string
		Data  struct {
			Result []struct {
				Metric map[string]string
				Values [][2]any
			}
		}
	}
	if err := json.NewDecoder(r.Body).Decode(&reply); err != nil || reply.Error != "" {
		t.Fatalf("%s: %v %s", expr, err, reply.Error)
	}
	for _, x := range reply.Data.Result {
		c := curve{name: regexp.MustCompile(`{{(\w+)}}`).ReplaceAllStringFunc(legend, func(l string) string { return x.Metric[strings.Trim(l, "{}")] })}
		for _, v := range x.Values {
			value, err := strconv.ParseFloat(v[1].(string), 64)
			if err == nil && !math.IsNaN(value) && !math.IsInf(value, 0) {
				c.points = append(c.points, [2]float64{v[0].(float64), value})
			}
		}
		if len(c.points) > 0 {
			curves = append(curves, c)
		}
	}
	return curves
}

var palette = []string{"#73bf69", "#f2cc0c", "#5794f2", "#ff9830", "#f2495c", "#b877d9", "#8ab8ff", "#37872d", "#e0b400", "#c4162a"}

// draw is the dashboard as an SVG.
func (d dashboard) draw(t *testing.T, api string, from, to time.Time) string {
	t.Helper()
	const column, row = 50.0, 26.0
	rows := 0
	for _, p := range d.Panels {
		rows = max(rows, p.GridPos.Y+p.GridPos.H)
	}
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %.0f %.0f" font-family="Inter, DejaVu Sans, sans-serif" font-size="11" fill="#ccccdc">`, 24*column, float64(rows)*row+36)
	fmt.Fprintf(&b, `<rect width="100%%" height="100%%" fill="#111217"/><text x="8" y="23" font-size="15" font-weight="bold">%s</text>`+"\n", html.EscapeString(d.Title))
	for _, p := range d.Panels {
		x, y, w, h := float64(p.GridPos.X)*column+4, float64(p.GridPos.Y)*row+36, float64(p.GridPos.W)*column-8, float64(p.GridPos.H)*row-8
		fmt.Fprintf(&b, `<rect x="%.0f" y="%.0f" width="%.0f" height="%.0f" rx="3" fill="#181b1f" stroke="#2c3235"/><text x="%.0f" y="%.0f" font-weight="bold">%s</text>`+"\n", x, y, w, h, x+8, y+17, html.EscapeString(p.Title))
		var curves []curve
		for _, target := range p.Targets {
			curves = append(curves, query(t, api, target.Expr, target.LegendFormat, from, to)...)
		}
		top := 0.0
		for _, c := range curves {
			for _, v := range c.points {
				top = max(top, v[1])
			}
		}
		if top == 0 {
			top = 1
		}
		const perLine = 3
		legend := float64((len(curves)+perLine-1)/perLine) * 14
		left, right, upper, lower := x+52, x+w-12, y+28, y+h-22-legend
		for _, part := range []float64{0, 0.5, 1} {
			at := lower - part*(lower-upper)
			fmt.Fprintf(&b, `<line x1="%.1f" x2="%.1f" y1="%.1f" y2="%.1f" stroke="#2c3235"/><text x="%.1f" y="%.1f" text-anchor="end" fill="#8e8e8e">%s</text>`+"\n", left, right, at, at, left-5, at+4, amount(part*top, p.FieldConfig.Defaults.Unit))
		}
		for s := from.Truncate(15 * time.Second).Add(15 * time.Second); s.Before(to); s = s.Add(15 * time.Second) {
			at := left + float64(s.Sub(from))/float64(to.Sub(from))*(right-left)
			fmt.Fprintf(&b, `<text x="%.1f" y="%.1f" text-anchor="middle" fill="#8e8e8e">%s</text>`+"\n", at, lower+14, s.Format("15:04:05"))
		}
		for i, c := range curves {
			colour := palette[i%len(palette)]
			var line strings.Builder
			for _, v := range c.points {
				fmt.Fprintf(&line, "%.1f,%.1f ", left+(v[0]-float64(from.Unix()))/to.Sub(from).Seconds()*(right-left), lower-v[1]/top*(lower-upper))
			}
			fmt.Fprintf(&b, `<polyline points="%s" fill="none" stroke="%s" stroke-width="1.3"/>`+"\n", strings.TrimSpace(line.String()), colour)
			at, under := x+10+float64(i%perLine)*(w-16)/perLine, lower+30+float64(i/perLine)*14
			fmt.Fprintf(&b, `<rect x="%.1f" y="%.1f" width="10" height="3" fill="%s"/><text x="%.1f" y="%.1f">%s</text>`+"\n", at, under-5, colour, at+14, under, html.EscapeString(c.name))
		}
	}
	b.WriteString("</svg>\n")
	return b.String()
}

// amount is a value as an axis shows it.
func amount(v float64, unit string) string {
	switch {
	case unit == "s" && v > 0 && v < 1:
		return fmt.Sprintf("%.3g ms", v*1000)
	case unit == "s":
		return fmt.Sprintf("%.3g s", v)
	case unit == "percentunit":
		return fmt.Sprintf("%.0f %%", v*100)
	case unit == "ops":
		return fmt.Sprintf("%.3g/s", v)
	}
	return fmt.Sprintf("%.3g", v)
}
