package main

import (
	"fmt"
	"strings"
)

func (o outcome) count(kind, worker string) (n int) {
	for _, e := range o.events {
		if e.Kind == kind && (worker == "" || e.From == worker) {
			n++
		}
	}
	return n
}

func (o outcome) table() string {
	var w strings.Builder
	const line = "%-9s  %13v  %18v  %14v  %11v\n"
	fmt.Fprintf(&w, line, "worker", "jobs finished", "kept off by leases", "claims granted", "leases lost")
	for _, name := range workers {
		label := name
		if name == o.killed.From {
			label += ", killed"
		}
		fmt.Fprintf(&w, line, label, o.count(finished, name), o.count(busy, name),
			fmt.Sprintf("%d of %d", o.count(claimed, name), o.count(claimed, name)+o.count(refused, name)),
			o.count(stopped, name))
	}
	return w.String()
}

func (o outcome) verdict() (problems []string) {
	bad := func(format string, args ...any) { problems = append(problems, fmt.Sprintf(format, args...)) }
	finishes := map[int]int{}
	token := map[int]uint64{}
	for _, e := range o.events {
		switch e.Kind {
		case finished:
			finishes[e.Number]++
		case claimed:
			if e.Token <= token[e.Number] {
				bad("job %d was claimed with token %d after %d", e.Number, e.Token, token[e.Number])
			}
			token[e.Number] = e.Token
		}
	}
	for id := 1; id <= jobs; id++ {
		if finishes[id] != 1 {
			bad("job %d was finished %d times", id, finishes[id])
		}
	}
	if o.undone > 0 {
		bad("%d jobs are not done by the table", o.undone)
	}
	if o.count(busy, "") == 0 {
		bad("no lease ever kept a worker off a job, so the filter was not tried")
	}
	if o.stoppedLate.Kind != stopped || o.stoppedLate.Item >= longSteps {
		bad("%s lost its lease and did all %d steps", o.lost.From, longSteps)
	} else if late := o.stoppedLate.At.Sub(o.lostAt); late > 2*leaseTTL {
		bad("%s was told only after %v that its lease was lost", o.lost.From, late)
	}
	if o.killedHeir.Kind != claimed || o.killedHeir.From == o.killed.From {
		bad("nobody took over the killed worker's job")
	}
	return problems
}
