package main

import (
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/examples/internal/demo"
	"github.com/leasehold-go/leasehold/examples/internal/demotest"
)

func TestMain(m *testing.M) {
	program.RunIfChild()
	os.Exit(m.Run())
}

func TestOneLeaderAtATime(t *testing.T) {
	t.Setenv("REDIS_URL", "")
	demotest.Check(t, program.Show)
}

var noon = time.Date(2030, 1, 1, 12, 0, 0, 0, time.UTC)

func at(ms int) time.Time { return noon.Add(time.Duration(ms) * time.Millisecond) }

// good is a run without fault.
func good() ([]term, []end) {
	terms := []term{
		{"A", 1, at(0), at(10)},
		{"B", 2, at(11), at(20)},
		{"C", 3, at(30), at(40)},
		{"D", 4, at(50), at(60)},
	}
	ends := []end{
		{what: "shut down", old: "A", next: "B", told: time.Millisecond, without: time.Millisecond},
		{what: "cut off", old: "B", next: "C", told: time.Millisecond, without: 10 * time.Millisecond},
		{what: "killed", old: "C", next: "D", without: 10 * time.Millisecond},
	}
	return terms, ends
}

// The verdict must find fault with each of these.
func TestVerdictFindsFault(t *testing.T) {
	if problems := verdict(good()); len(problems) > 0 {
		t.Fatalf("fault is found with a good run: %q", problems)
	}
	for want, spoil := range map[string]func(terms []term, ends []end){
		"led at once":           func(terms []term, _ []end) { terms[1].end = at(300) },
		"is not above":          func(terms []term, _ []end) { terms[2].token = 2 },
		"has no end":            func(terms []term, _ []end) { terms[3].end = time.Time{} },
		"nobody took over":      func(_ []term, ends []end) { ends[2].next = "C" },
		"did not hand over":     func(_ []term, ends []end) { ends[0].without = leaseTTL },
		"told only after":       func(_ []term, ends []end) { ends[1].told = 3 * leaseTTL },
		"of 3 leaders were end": nil,
	} {
		terms, ends := good()
		if spoil != nil {
			spoil(terms, ends)
		} else {
			ends = ends[:2]
		}
		if problems := strings.Join(verdict(terms, ends), "\n"); !strings.Contains(problems, want) {
			t.Errorf("no word of %q in %q", want, problems)
		}
	}
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
	if !slices.Equal(terms, want) {
		t.Errorf("got %v; want %v", terms, want)
	}
}
