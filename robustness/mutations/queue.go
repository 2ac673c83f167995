package main

// queue are the guards of the queue of a server, and of what is due there.
var queue = []mutation{
	{
		name: "queue: renewals first", file: "internal/call/queue.go",
		old: "[...]Rank{KeepsLease, GivesBack, q.next,", new: "[...]Rank{q.next, GivesBack, KeepsLease,",
		packages: callTests, tests: "ByRank",
	},
	{
		name: "queue: renewals before leaves", file: "internal/call/queue.go",
		old: "[...]Rank{KeepsLease, GivesBack, q.next,", new: "[...]Rank{GivesBack, KeepsLease, q.next,",
		packages: callTests, tests: "ByRank",
	},
	{
		name: "queue: the lease that ends first is renewed first", file: "internal/call/queue.go",
		old: "if one.Rank == KeepsLease {", new: "if false {",
		packages: callTests, tests: "ByRank",
	},
	{
		name: "queue: callers and signs of life in turn", file: "internal/call/queue.go",
		old: "q.next = ForCaller + SignOfLife - rank", new: "q.next = ForCaller",
		packages: callTests, tests: "ByRank",
	},
	{
		name: "queue: a long way is shared by more round trips", file: "internal/call/queue.go",
		old: "	if q.spreads() {\n", new: "	if false {\n",
		packages: callTests, tests: "LongWay",
	},
	{
		name: "queue: round trips that hang hold up no other", file: "internal/call/queue.go",
		old: "case q.trips < q.most(maxHanging):", new: "case false:",
		packages: callTests, tests: "HangingRoundTrips",
	},
	{
		name: "queue: nothing is given up while the server answers", file: "internal/call/queue.go",
		old: "if now.Sub(q.answered) < bound {", new: "if false {",
		packages: callTests, tests: "IsKept",
	},
	{
		name: "queue: calls are given up when the server is silent", file: "internal/call/queue.go",
		old: "if now.Sub(q.answered) < bound {", new: "if true {",
		packages: callTests, tests: "ThatHangsAreAnswered",
	},
	{
		name: "queue: a withdrawn call has an outcome", file: "internal/call/queue.go",
		old: "\t\tone.done(outcome{err: err})\n\t}\n}\n", new: "\t}\n}\n",
		packages: callTests, tests: "OneOutcome",
	},
	{
		name: "queue: no more trips than connections", file: "internal/call/queue.go",
		old: "return min(usual, n)", new: "return usual",
		packages: callTests, tests: "AConnectionEach",
	},
	{
		name: "queue: pipelines grow", file: "internal/call/pace.go",
		old: "p.bytes = min(2*p.bytes,", new: "p.bytes = min(p.bytes,",
		packages: callTests, tests: "Grow",
	},
	{
		name: "queue: pipelines do not grow where trips take no time", file: "internal/call/pace.go",
		old: "if shortest <= 0 {", new: "if false {",
		packages: callTests, tests: "Grow",
	},
	{
		name: "queue: pipelines are short again after a failure", file: "internal/call/pace.go",
		old: "func (p *pace) failed() { p.bytes = p.least }", new: "func (p *pace) failed() {}",
		packages: callTests, tests: "Grow",
	},
	{
		name: "queue: the floor of the shortest trip", file: "internal/call/pace.go",
		old: "usual := max(shortest, quickTrip)\n", new: "usual := shortest\n",
		packages: callTests, tests: "Grow",
	},
	{
		name: "queue: short pipelines for callers over a short way", file: "internal/call/queue.go",
		old: "if !q.pace.quick() {", new: "if true {",
		packages: callTests, tests: "ShortWay",
	},
	{
		name: "queue: one trip of renewals over a short way", file: "internal/call/queue.go",
		old: "rank == KeepsLease && q.renewing > 0 && q.pace.quick()", new: "false",
		packages: callTests, tests: "ShortWay",
	},
	{
		name: "queue: renewals that hang hold up no others", file: "internal/call/queue.go",
		old: "\t\tq.renewing = 0\n", new: "",
		packages: callTests, tests: "ShortWay",
	},
	{
		name: "queue: the wait does not make a call void", file: "internal/call/call.go",
		old: "*c.Void = us + c.VoidAfter.Microseconds()", new: "_ = us",
		packages: callTests, tests: "Void",
	},
	{
		name: "queue: what is never void stays so", file: "internal/call/call.go",
		old: "if c.Void != nil && *c.Void != 0 {", new: "if c.Void != nil {",
		packages: callTests, tests: "Void",
	},
	{
		name: "queue: a renewal in the queue is not repeated", file: "internal/lease/life_held.go",
		old: "\t\t\ta.renewAt = pending\n\t\t\treturn nothing, fx\n", new: "",
		packages: "./internal/lease", tests: "AtATime",
	},
	{
		name: "queue: an ask in the queue is not repeated", file: "internal/lease/group.go",
		old: "for _, c := range g.asks {", new: "for _, c := range g.asks[:0] {",
		packages: "./internal/lease", tests: "AtATime",
	},
	{
		name: "queue: a leave in the queue is not repeated", file: "internal/lease/life_held.go",
		old: "\t\t\ta.next = pending\n\t\t\treturn nothing, fx\n", new: "",
		packages: "./internal/lease", tests: "AtATime",
	},
	{
		name: "queue: a hint during an ask causes another one", file: "internal/lease/group.go",
		old: "g.hinted = at\n\t}\n}", new: "}\n}",
		packages: "./internal/lease", tests: "AtATime",
	},
	{
		name: "hooks: an enter that was sent again leaves no phantom, and such a leave is no loss", file: "internal/lease/attempt.go",
		old: "if r.Copied = c.Copied(); r.Code", new: "if r.Code",
		packages: "./internal/tests/faults/mutex", tests: "AHookRepeated", servers: true,
	},
}
