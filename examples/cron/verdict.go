package main

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/leasehold-go/leasehold/examples/internal/demo"
)

// stretch is a time in which a process ran a night's job.
type stretch struct {
	process    string
	night      int
	start, end time.Time
	letters    int
}

// stretches reads from the events who ran what when. A stretch that was cut off
// ends with its last letter, or with its process.
func (o outcome) stretches() (all []stretch) {
	running := map[string]int{} // by process: its place in all
	for _, e := range o.events {
		i, runs := running[e.From]
		switch {
		case e.Kind == begins:
			running[e.From] = len(all)
			all = append(all, stretch{process: e.From, night: e.Number, start: e.At, end: e.At})
		case !runs:
		case e.Kind == sent:
			all[i].letters++
			all[i].end = e.At
		case e.Kind == ready || e.Kind == rests || e.Kind == demo.Ended:
			all[i].end = e.At
			delete(running, e.From)
		}
	}
	slices.SortFunc(all, func(a, b stretch) int { return a.start.Compare(b.start) })
	return all
}

func (o outcome) verdict() (problems []string) {
	bad := func(format string, args ...any) { problems = append(problems, fmt.Sprintf(format, args...)) }
	for night := 1; night <= nights; night++ {
		for letter := 1; letter <= letters; letter++ {
			if n := o.sent[[2]int{night, letter}]; n != 1 {
				bad("letter %d of night %d was sent %d times", letter, night, n)
			}
		}
	}
	all := o.stretches()
	for i := 1; i < len(all); i++ {
		if all[i].start.Before(all[i-1].end) {
			bad("%s and %s ran the job at once", all[i-1].process, all[i].process)
		}
	}
	tookOver := false
	for _, s := range all {
		if s.night == 2 && s.process != o.killed && s.start.After(o.killedAt) && s.letters > 0 {
			tookOver = true
		}
		if s.night == 3 && s.start.Before(o.backAt) {
			bad("%s ran night 3 while Redis was away", s.process)
		}
	}
	if !tookOver {
		bad("nobody took over from the killed %s", o.killed)
	}
	return problems
}

func (o outcome) table() string {
	var w strings.Builder
	const line = "%-5v  %-6s  %7v%s\n"
	fmt.Fprintf(&w, line, "night", "run by", "letters", "")
	for _, s := range o.stretches() {
		note := ""
		switch {
		case s.night == 2 && s.process == o.killed:
			note = "  then it was killed"
		case s.night == 2:
			note = fmt.Sprintf("  took over %.1f s after the kill", s.start.Sub(o.killedAt).Seconds())
		case s.night == 3:
			note = fmt.Sprintf("  began %.1f s after Redis was back", s.start.Sub(o.backAt).Seconds())
		}
		fmt.Fprintf(&w, line, s.night, s.process, s.letters, note)
	}
	return w.String()
}
