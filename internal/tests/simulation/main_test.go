package simulation

import (
	"runtime/debug"
	"testing"

	"github.com/leasehold-go/leasehold/internal/redistest"
)

func TestMain(m *testing.M) {
	// A run makes much garbage and keeps little: half of the time went into collecting it.
	debug.SetGCPercent(800)
	redistest.Main(m)
}
