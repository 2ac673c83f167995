package main

import (
	"strings"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/examples/internal/demo"
	"github.com/leasehold-go/leasehold/examples/internal/demotest"
	"github.com/leasehold-go/leasehold/internal/redistest"
)

func TestMain(m *testing.M) { demotest.Main(m, main) }

func TestOneLeaderAtATime(t *testing.T) { demotest.Check(t) }

func TestOverlapsAreFound(t *testing.T) {
	event := func(from, kind string, token uint64, ms int) demo.Event {
		return demo.Event{From: from, Kind: kind, Token: token, At: time.UnixMilli(int64(ms))}
	}
	first := []demo.Event{event("A", leads, 1, 0), event("A", stopped, 0, 1000), event("A", demo.Ended, 0, 1001)}
	for want, second := range map[string]demo.Event{
		"": event("B", leads, 2, 800), "B led beside A": event("B", leads, 2, 700), "token 1 is not above 1": event("B", leads, 1, 1100),
	} {
		got := strings.Join(overlaps(append([]demo.Event{second}, first...)), "; ")
		redistest.Check(t, strings.Contains(got, want) && (got == "") == (want == ""), "got %q; want %q", got, want)
	}
}
