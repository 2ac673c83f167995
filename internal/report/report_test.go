package report_test

import (
	"bytes"
	"io"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/report"
)

type observer func(leasehold.Event)

func (o observer) Observe(e leasehold.Event) { o(e) }

type oneServer struct{}

func (oneServer) Node(string) string { return "s" }

// refusal is an answer of a server.
type refusal string

func (r refusal) Error() string { return string(r) }
func (refusal) RedisError()     {}

// A server that refuses a call answers again. One that is loading its data serves nobody yet.
func TestServerThatRefusesIsBack(t *testing.T) {
	var told []leasehold.EventKind
	events := report.New("mutex", "t", observer(func(e leasehold.Event) { told = append(told, e.Kind) }), nil)
	for _, err := range []error{io.EOF, refusal("LOADING"), refusal("NOPERM"), refusal("NOPERM"), io.EOF, nil} {
		events.Reached(oneServer{}, "k", err)
		events.End()
	}
	away, back := leasehold.EventUnavailable, leasehold.EventAvailable
	if want := []leasehold.EventKind{away, back, away, back}; !slices.Equal(told, want) {
		t.Errorf("the Observer was told %v; want %v", told, want)
	}
}

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
