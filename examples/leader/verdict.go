package main

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/leasehold-go/leasehold/examples/internal/demo"
)

// term is a stretch of time in which a process led.
type term struct {
	leader     string
	token      uint64
	start, end time.Time
}

// late is how much later than it was told a leader may say that it has stopped: the machine may
// be busy.
const late = leaseTTL / 4

// termsOf reads the terms from what was reported, in the order of their starts.
// A killed leader's term ended with its process.
func termsOf(events []demo.Event) (terms []term) {
	open := map[string]int{}
	for _, e := range events {
		switch e.Kind {
		case leads:
			open[e.From] = len(terms)
			terms = append(terms, term{leader: e.From, token: e.Token, start: e.At})
		case stopped, demo.Ended:
			if i, ok := open[e.From]; ok {
				terms[i].end = e.At
				delete(open, e.From)
			}
		}
	}
	slices.SortFunc(terms, func(a, b term) int { return a.start.Compare(b.start) })
	return terms
}

func verdict(terms []term, ends []end) (problems []string) {
	bad := func(format string, args ...any) { problems = append(problems, fmt.Sprintf(format, args...)) }
	for i, t := range terms {
		if t.end.IsZero() {
			bad("%s's term has no end", t.leader)
		}
		if i == 0 {
			continue
		}
		before := terms[i-1]
		if both := before.end.Sub(t.start); both > late {
			bad("%s and %s led at once, for %v", before.leader, t.leader, both)
		}
		if t.token <= before.token {
			bad("%s's token %d is not above %s's %d", t.leader, t.token, before.leader, before.token)
		}
	}
	if want := 3; len(ends) != want {
		bad("%d of %d leaders were ended", len(ends), want)
	}
	for _, e := range ends {
		switch {
		case e.next == e.old:
			bad("%s was %s and leads again: nobody took over", e.old, e.what)
		case e.what == "shut down" && e.without >= leaseTTL:
			bad("%s was shut down and did not hand over: no leader for %v", e.old, e.without)
		case e.what == "cut off" && e.told > 2*leaseTTL:
			bad("%s was cut off and told only after %v", e.old, e.told)
		}
	}
	return problems
}

func table(ends []end) string {
	var w strings.Builder
	const line = "%-10s  %-6s  %16s  %18s  %14s\n"
	fmt.Fprintf(&w, line, "the leader", "", "it stopped after", "next leader after", "without leader")
	for _, e := range ends {
		told := milliseconds(e.told)
		if e.what == "killed" {
			told = "–"
		}
		fmt.Fprintf(&w, line, e.what, e.old+" → "+e.next, told, milliseconds(e.took), milliseconds(e.without))
	}
	return w.String()
}

func milliseconds(d time.Duration) string {
	return fmt.Sprintf("%.1f ms", float64(d)/float64(time.Millisecond))
}

// timeline draws who led when, one line a process.
func timeline(terms []term) (lines []string) {
	const width = 70
	if len(terms) == 0 {
		return nil
	}
	begin, end := terms[0].start, terms[len(terms)-1].end
	column := func(at time.Time) int {
		return min(width-1, int(float64(width)*float64(at.Sub(begin))/float64(end.Sub(begin)+1)))
	}
	for _, name := range names {
		cells := []rune(strings.Repeat("·", width))
		for _, t := range terms {
			if t.leader == name {
				for i := column(t.start); i <= column(t.end); i++ {
					cells[i] = '█'
				}
			}
		}
		lines = append(lines, name+"  "+string(cells))
	}
	return append(lines, fmt.Sprintf("   0 s%*s", width-3, fmt.Sprintf("%.1f s", end.Sub(begin).Seconds())))
}
