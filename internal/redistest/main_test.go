package redistest

import (
	"flag"
	"testing"
)

func TestMain(m *testing.M) {
	if !isChild() {
		flag.Parse()
		// The parallel tests here wait for failovers, not for a processor.
		if err := flag.Set("test.parallel", "8"); err != nil {
			panic(err)
		}
	}
	Main(m)
}
