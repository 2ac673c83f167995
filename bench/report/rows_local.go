package main

import (
	"fmt"
	"time"
)

// local is the rows of Config.LocalFor: what is gained where a lease serves several turns
// of a process, by the round trip to the server, and what a lone caller pays for it.
func local() []Row {
	const q = "local"
	var rows []Row
	for _, c := range []struct {
		roundTrip, localFor time.Duration
		turns, calls        float64 // what to reach: turns to a local mutex's, script calls a turn
	}{
		{0, 5 * time.Millisecond, 0.93, 0.65},
		{0, 20 * time.Millisecond, 0.96, 0.2},
		{2 * time.Millisecond, 5 * time.Millisecond, 0.65, 0.65},
		{2 * time.Millisecond, 20 * time.Millisecond, 0.85, 0.2},
	} {
		b, who := of(ours, fmt.Sprintf("LocalTurns/roundtrip=%v", c.roundTrip)), fmt.Sprintf("local%v", c.localFor)
		name := fmt.Sprintf("local-%v-%v", c.roundTrip, c.localFor)
		what := fmt.Sprintf("round trip %v, LocalFor %v; one key, 4 clients × 16 goroutines, 1 ms each: ", c.roundTrip, c.localFor)
		rows = append(rows,
			times(name+"-turns", q, what+"turns a second to a local sync.Mutex's", ratio(b, who+"-turns/s", "local-turns/s"), atLeast(c.turns), atLeast(0.3)),
			times(name+"-strict", q, what+"turns a second to those of strict order", ratio(b, who+"-turns/s", "local0s-turns/s"), atLeast(1), atLeast(0.8)),
			times(name+"-fewest", q, what+"fewest turns of a client to the most", metric(b, who+"-fewest/most-client"), atLeast(0.95), atLeast(0.6)),
			times(name+"-calls", q, what+"script calls a turn", metric(b, who+"-calls/turn"), atMost(c.calls), atMost(1.5)))
	}
	return append(rows,
		times("local-permits", q, "round trip 2 ms, LocalFor 20 ms; 8 permits, 200 goroutines, 5 ms each: use of the cap",
			metric(of(ours, "LocalPermits/localfor=20ms"), "of-cap"), atLeast(0.8), atLeast(0.4)),
		Row{
			Name: "local-lone", Question: q, What: "LocalFor 20 ms; lone lock + unlock, above one in strict order",
			Formula: difference(of(ours, "LocalLonePair/memory=false"), "local-µs", "strict-µs"), Unit: "µs", Bar: atMost(1), Guard: atMost(20),
		},
		Row{
			Name: "local-lone-process", Question: q, What: "the same, where replies come from memory: the process's own work",
			Formula: difference(of(ours, "LocalLonePair/memory=true"), "local-µs", "strict-µs"), Unit: "µs", Bar: atMost(1), Guard: atMost(5),
		})
}
