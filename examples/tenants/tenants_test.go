package main

import (
	"testing"

	"github.com/leasehold-go/leasehold/examples/internal/demotest"
)

func TestMain(m *testing.M) { demotest.Main(m, main) }

func TestModestTenantsAreLetInAtTheirTurn(t *testing.T) {
	demotest.Slow(t)
	demotest.Check(t)
}
