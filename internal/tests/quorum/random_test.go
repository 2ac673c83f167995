package quorum

import (
	"os"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/internal/redistest"
)

// span is how long a random run takes: LEASEHOLD_QUORUM_FOR, or a few seconds.
func span(t *testing.T) time.Duration {
	text, set := os.LookupEnv("LEASEHOLD_QUORUM_FOR")
	if !set {
		return 8 * time.Second
	}
	d := redistest.Must(time.ParseDuration(text))(t)
	return d
}

// Random faults strike a minority of the servers, one after the other, while handles compete. The
// witness sees every holder for as long as its lock claims to be held. LEASEHOLD_QUORUM_FOR is how
// long a run takes, LEASEHOLD_SEED what it does.
func TestRandomFaults(t *testing.T) {
	seed := redistest.Seed(t)
	for size, n := range sizes {
		t.Run(size, func(t *testing.T) { Random(t, Run{Servers: n, Seed: seed, For: span(t)}) })
	}
}

// The same, while the clocks of the servers differ and jump.
func TestRandomFaultsAndClocks(t *testing.T) {
	seed := redistest.Seed(t)
	for size, n := range sizes {
		t.Run(size, func(t *testing.T) { Random(t, Run{Servers: n, Seed: seed, For: span(t), Clocks: true}) })
	}
}
