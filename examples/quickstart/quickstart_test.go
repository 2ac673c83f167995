package main

import (
	"os"
	"testing"

	"github.com/leasehold-go/leasehold/examples/internal/demotest"
)

func TestMain(m *testing.M) { demotest.Main(m, main) }

func TestQuickstart(t *testing.T) {
	if os.Getenv("LEASEHOLD_REQUIRE_SERVERS") == "" {
		t.Skip("it takes 11 s: make test runs it")
	}
	demotest.Check(t)
}
