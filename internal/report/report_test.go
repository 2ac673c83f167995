package report_test

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/internal/report"
)

// A TTL that the network is too slow for is logged, once.
func TestTTLThatIsTooShortIsLoggedOnce(t *testing.T) {
	var log bytes.Buffer
	events := report.New("mutex", "t", nil, slog.New(slog.NewTextHandler(&log, nil)))
	for _, took := range []time.Duration{time.Second, time.Second + 1, 2 * time.Second} {
		events.RoundTrip(3*time.Second, took)
		events.End()
		want := min(1, int(took-time.Second))
		if n := strings.Count(log.String(), "round_trip="); n != want {
			t.Errorf("%d lines after a round trip of %v; want %d:\n%s", n, took, want, &log)
		}
	}
}
