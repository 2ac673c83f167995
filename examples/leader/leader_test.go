package main

import (
	"testing"

	"github.com/leasehold-go/leasehold/examples/internal/demotest"
)

func TestMain(m *testing.M) { demotest.Main(m, main) }

func TestOneLeaderAtATime(t *testing.T) { demotest.Check(t) }
