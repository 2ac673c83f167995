package main

import (
	"slices"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/examples/internal/demo"
	"github.com/leasehold-go/leasehold/examples/internal/demotest"
	"github.com/leasehold-go/leasehold/internal/redistest"
)

func TestMain(m *testing.M) { demotest.Main(m, program) }

func TestOneLeaderAtATime(t *testing.T) { demotest.Check(t, program) }

func at(ms int) time.Time { return time.UnixMilli(int64(ms)) }

func TestVerdictFindsFault(t *testing.T) {
	demotest.FindsFault(t, verdict, func() *outcome {
		return &outcome{
			terms: []term{
				{"A", 1, at(0), at(10)},
				{"B", 2, at(11), at(20)},
				{"C", 3, at(30), at(40)},
				{"D", 4, at(50), at(60)},
			},
			ends: []end{
				{what: "shut down", old: "A", next: "B", told: time.Millisecond, without: time.Millisecond},
				{what: "cut off", old: "B", next: "C", told: time.Millisecond, without: 10 * time.Millisecond},
				{what: "killed", old: "C", next: "D", without: 10 * time.Millisecond},
			},
		}
	}, map[string]func(*outcome){
		"led at once":           func(o *outcome) { o.terms[1].end = at(300) },
		"is not above":          func(o *outcome) { o.terms[2].token = 2 },
		"has no end":            func(o *outcome) { o.terms[3].end = time.Time{} },
		"nobody took over":      func(o *outcome) { o.ends[2].next = "C" },
		"did not hand over":     func(o *outcome) { o.ends[0].without = leaseTTL },
		"told only after":       func(o *outcome) { o.ends[1].told = 3 * leaseTTL },
		"of 3 leaders were end": func(o *outcome) { o.ends = o.ends[:2] },
	})
}

func TestTermsEndWithTheirProcess(t *testing.T) {
	terms := termsOf([]demo.Event{
		{From: "A", Kind: leads, Token: 1, At: at(0)},
		{From: "A", Kind: stopped, At: at(5)},
		{From: "B", Kind: leads, Token: 2, At: at(6)},
		{From: "A", Kind: demo.Ended, At: at(7)},
		{From: "B", Kind: demo.Ended, At: at(9)},
		{From: "A", Kind: leads, Token: 3, At: at(10)},
		{From: "A", Kind: stopped, At: at(20)},
	})
	want := []term{{"A", 1, at(0), at(5)}, {"B", 2, at(6), at(9)}, {"A", 3, at(10), at(20)}}
	redistest.Check(t, slices.Equal(terms, want), "got %v; want %v", terms, want)
}
