package main

import (
	"testing"

	"github.com/leasehold-go/leasehold/examples/internal/demotest"
)

func TestMain(m *testing.M) { demotest.Main(m, main) }

// Real processes, one of them stopped past its TTL, on both databases.
func TestStaleOwnerTouchesNoRow(t *testing.T) {
	demotest.OnEachDatabase(t, func(t *testing.T, redis string) { demotest.Check(t, "", redis) })
}
