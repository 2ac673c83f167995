package main

import (
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/examples/internal/demotest"
)

func TestMain(m *testing.M) { demotest.Main(m, program) }

func TestExtendedLeasesOutliveAnOutage(t *testing.T) { demotest.Check(t, program) }

func TestVerdictFindsFault(t *testing.T) {
	demotest.FindsFault(t, verdict, func() []*record {
		return []*record{
			{name: "A", mode: modeRenew, lost: true},
			{name: "B", mode: modeExtend, done: true},
			{name: "C", mode: modeRenew, killed: true, left: 800 * time.Millisecond, waited: 900 * time.Millisecond},
			{name: "D", mode: modeExtend, killed: true, left: 2900 * time.Millisecond, waited: 3 * time.Second},
		}
	}, map[string]func([]*record){
		"A was not told":      func(r []*record) { r[0].lost = false },
		"was not told that":   func(r []*record) { r[0].done = true },
		"B lost its lease":    func(r []*record) { r[1].lost = true },
		"lock after 700ms":    func(r []*record) { r[2].waited = 700 * time.Millisecond },
		"lock after 4s":       func(r []*record) { r[2].waited = 4 * time.Second },
		"D's lease had 800ms": func(r []*record) { r[3].left, r[3].waited = r[2].left, r[2].waited },
	})
}
