package main

import (
	"os"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/examples/internal/demo"
	"github.com/leasehold-go/leasehold/examples/internal/demotest"
	"github.com/leasehold-go/leasehold/internal/redistest"
)

func TestMain(m *testing.M) { demotest.Main(m, program) }

func TestQuickstart(t *testing.T) {
	if os.Getenv("LEASEHOLD_REQUIRE_SERVERS") == "" {
		t.Skip("it takes 11 s: make test runs it")
	}
	demotest.Check(t, program)
}

// at makes an event of tenant acme, cap 2, at ms.
func at(ms int, kind, from string) demo.Event {
	return demo.Event{At: time.UnixMilli(int64(ms)), Kind: kind, From: from, Text: "acme"}
}

// The figures at the end are only as good as measure. The first worker is killed at 12 ms.
func TestMeasure(t *testing.T) {
	two := []demo.Event{at(0, waits, "1"), at(1, started, "1"), at(0, waits, "2"), at(5, started, "2"), at(12, demo.Ended, "1"), at(30, ended, "2")}
	for what, c := range map[string]struct {
		third []demo.Event
		most  int
	}{
		"a third job inside both":       {[]demo.Event{at(6, started, "3"), at(8, ended, "3")}, 3},
		"while the killed one may run":  {[]demo.Event{at(11, started, "3"), at(20, ended, "3")}, 3},
		"after the killed one has gone": {[]demo.Event{at(20, started, "3"), at(25, ended, "3")}, 2},
		"at the very end of one":        {[]demo.Event{at(30, started, "3"), at(30, started, "4")}, 3},
		"after all have ended":          {[]demo.Event{at(40, started, "3")}, 2},
	} {
		r := measure(append(c.third, two...), "acme")
		redistest.Check(t, r.most == c.most && r.longestWait >= 5*time.Millisecond, "%s: %+v; want at most %d at once", what, r, c.most)
	}
}
