package main

import (
	"os"
	"testing"

	"github.com/redis/go-redis/v9/logging"
)

// The program starts itself as its server processes: here, that is the test.
func TestMain(m *testing.M) {
	logging.Disable() // as main does
	if len(os.Args) == 3 && os.Args[1] == childArg {
		os.Exit(childMain(os.Args[2]))
	}
	os.Exit(m.Run())
}
