package main

import (
	"os"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/examples/internal/demotest"
)

func TestMain(m *testing.M) {
	program.RunIfChild()
	os.Exit(m.Run())
}

func TestExtendedLeasesOutliveAnOutage(t *testing.T) {
	t.Setenv("REDIS_URL", "")
	demotest.Check(t, program.Show)
}

// The verdict must find fault with each of these.
func TestVerdictFindsFault(t *testing.T) {
	good := func() []*record {
		return []*record{
			{name: "A", mode: modeRenew, lost: true},
			{name: "B", mode: modeExtend, done: true},
			{name: "C", mode: modeRenew, killed: true, left: 800 * time.Millisecond, waited: 900 * time.Millisecond},
			{name: "D", mode: modeExtend, killed: true, left: 2900 * time.Millisecond, waited: 3 * time.Second},
		}
	}
	if problems := verdict(good()); len(problems) > 0 {
		t.Fatalf("fault is found with good runs: %q", problems)
	}
	for name, spoil := range map[string]func(r []*record){
		"not told":             func(r []*record) { r[0].lost = false },
		"worked on":            func(r []*record) { r[0].done = true },
		"lost though extended": func(r []*record) { r[1].lost = true },
		"taken too early":      func(r []*record) { r[2].waited = 700 * time.Millisecond },
		"taken too late":       func(r []*record) { r[2].waited = 4 * time.Second },
		"not extended":         func(r []*record) { r[3].left, r[3].waited = r[2].left, r[2].waited },
	} {
		runs := good()
		spoil(runs)
		if len(verdict(runs)) == 0 {
			t.Errorf("%s: no fault is found", name)
		}
	}
}
