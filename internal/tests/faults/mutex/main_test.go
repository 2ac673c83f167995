package mutex

import (
	"flag"
	"testing"

	"github.com/leasehold-go/leasehold/internal/redistest"
)

func TestMain(m *testing.M) {
	// The tests here wait for leases to end, not for a processor. A -parallel
	// on the command line is parsed later and wins.
	if err := flag.Set("test.parallel", "8"); err != nil {
		panic(err)
	}
	redistest.Main(m)
}
