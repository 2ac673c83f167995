package main

import "fmt"

// Row is one thing that is asked: a figure, what it is to reach, and at what it
// counts as broken.
type Row struct {
	Name     string // what -rows selects it by
	Question string // a section of the page, and what -rows selects it by, too
	What     string
	Formula
	Unit string // of the figure; "×" for a ratio

	// Bar is what to reach; rows without one are there to compare.
	Bar Limit

	// Guard is what -check demands: loose for what a noisy machine shifts, the
	// bar itself for what is counted.
	Guard Limit

	// Counted figures don't depend on how busy the machine is: each repetition has to
	// keep the limits. Of the others the median has to.
	Counted bool
}

// Module is where the row's benchmark is.
func (r Row) Module() string { return r.Bench.Module }

func of(module, name string) Bench { return Bench{module, name} }

// crowd is the size of crowd that the bars of many keys are for.
const crowd = "ManyKeys/goroutines=128"

// Rows is every row, in the order of the page. The bars are not to be loosened.
var Rows = joined(
	network(), lone(), many(), server(), contended(), local(), handover(), idle(), leases(), grows(), hits(), stampede(), capacity(),
)

func joined(all ...[]Row) (rows []Row) {
	for _, some := range all {
		rows = append(rows, some...)
	}
	return rows
}

// times is a row of a ratio.
func times(name, question, what string, f Formula, bar, guard Limit) Row {
	return Row{Name: name, Question: question, What: what, Formula: f, Unit: "×", Bar: bar, Guard: guard}
}

// counted is a row of what is counted: the guard is the bar.
func counted(name, question, what string, f Formula, unit string, bar Limit) Row {
	return Row{Name: name, Question: question, What: what, Formula: f, Unit: unit, Bar: bar, Guard: bar, Counted: true}
}

func lone() []Row {
	const q = "lone"
	background, cancellable, beside := of(ours, "LonePair/background"), of(ours, "LonePair/cancellable"), of(peers, "LonePair")
	return []Row{
		{
			Name: "lone-floor", Question: q, What: "lone lock + unlock, above two bare round trips",
			Formula: difference(background, "mutex-µs", "floor-µs"), Unit: "µs", Bar: atMost(12), Guard: atMost(100),
		},
		times("lone-floor-ratio", q, "lone lock + unlock, to two bare round trips", ratio(background, "mutex-µs", "floor-µs"), Limit{}, atMost(2)),
		times("lone-semaphore", q, "lone permit, to two bare round trips", ratio(background, "semaphore-µs", "floor-µs"), Limit{}, atMost(2)),
		times("lone-cancellable", q, "lone lock + unlock under a ctx that can end, to two bare round trips", ratio(cancellable, "mutex-µs", "floor-µs"), Limit{}, atMost(2.5)),
		times("lone-redislock", q, "lone lock + unlock, beside redislock", ratio(beside, "mutex-µs", "redislock-µs"), atMost(1.08), atMost(1.5)),
		times("lone-redsync", q, "lone lock + unlock, beside redsync", ratio(beside, "mutex-µs", "redsync-µs"), atMost(0.95), atMost(1.4)),
		times("lone-rueidislock", q, "lone lock + unlock, beside rueidislock", ratio(beside, "mutex-µs", "rueidislock-µs"), Limit{}, atMost(1.5)),
		counted("lone-allocs", q, "allocations of a lock + unlock", metric(of(ours, "LoneAllocs"), "allocs/op"), "", atMost(24)),
	}
}

func many() []Row {
	const q = "many"
	own, beside := of(ours, crowd), of(peers, crowd)
	// Pairs a second, ours to theirs, is their time of a pair to ours.
	return []Row{
		times("many-floor", q, "128 goroutines, a key each: pairs a second to those of bare round trips, pipelined", ratio(own, "piped-floor-µs", "mutex-µs"), atLeast(0.85), atLeast(0.15)),
		times("many-calls", q, "128 goroutines, a key each: pairs a second to those of the pair's own calls of Redis, pipelined", ratio(own, "piped-calls-µs", "mutex-µs"), atLeast(0.87), atLeast(0.2)),
		times("many-semaphore", q, "128 goroutines, a permit each: pairs a second to those of bare round trips, pipelined", ratio(own, "piped-floor-µs", "semaphore-µs"), Limit{}, atLeast(0.15)),
		times("many-redislock", q, "128 goroutines, a key each: pairs a second to redislock's", ratio(beside, "redislock-µs", "mutex-µs"), atLeast(1.7), atLeast(1.1)),
		times("many-redsync", q, "128 goroutines, a key each: pairs a second to redsync's", ratio(beside, "redsync-µs", "mutex-µs"), atLeast(2.2), atLeast(1.4)),
		times("many-redislock-piped", q, "128 goroutines, a key each: pairs a second to redislock's on an AutoPipeline client", ratio(beside, "redislock-piped-µs", "mutex-µs"), atLeast(0.9), atLeast(0.6)),
		times("many-rueidislock", q, "128 goroutines, a key each: pairs a second to rueidislock's", ratio(beside, "rueidislock-µs", "mutex-µs"), Limit{}, atLeast(0.5)),
	}
}

func server() []Row {
	const q = "server"
	b := of(ours, "ServerTime")
	return []Row{
		// The bar is 9 µs where the no-ops take 2.0.
		times("server-mutex", q, "server time of a lock + unlock, to that of two empty scripts", ratio(b, "mutex-server-µs", "noop-server-µs"), atMost(4.5), atMost(14)),
		times("server-calls", q, "server time of a lock + unlock, to that of its own calls of Redis", ratio(b, "mutex-server-µs", "calls-server-µs"), atMost(1.15), atMost(3)),
		times("server-calls-floor", q, "server time of those calls, to that of two empty scripts", ratio(b, "calls-server-µs", "noop-server-µs"), Limit{}, Limit{}),
		times("server-semaphore", q, "server time of a permit, to that of two empty scripts", ratio(b, "semaphore-server-µs", "noop-server-µs"), Limit{}, atMost(14)),
	}
}

func contended() []Row {
	const q = "contended"
	own, beside := of(ours, "Contended"), of(peers, "Contended")
	rows := []Row{
		times("contended-turns", q, "one key, 64 goroutines: turns a second to a local sync.Mutex's", ratio(own, "mutex-turns/s", "local-turns/s"), atLeast(0.88), atLeast(0.6)),
		times("contended-longest", q, "one key, 64 goroutines: longest wait to the mean one", metric(own, "mutex-longest/mean"), atMost(1.15), atMost(2)),
		times("contended-fewest", q, "one key, 64 goroutines: fewest turns of a goroutine to the most", metric(own, "mutex-fewest/most"), atLeast(0.9), atLeast(0.6)),
		counted("contended-calls", q, "one key, 64 goroutines: script calls a turn", metric(own, "mutex-calls/turn"), "", atMost(2.1)),
	}
	for _, who := range []string{"mutex", "redislock", "redsync", "rueidislock"} {
		name := who
		if who == "mutex" {
			name = "leasehold"
		}
		rows = append(rows,
			times("contended-peers-"+who, q, "turns to a local sync.Mutex's, "+name+"", ratio(beside, who+"-turns/s", "local-turns/s"), Limit{}, Limit{}))
	}
	return rows
}

func handover() []Row {
	const q = "handover"
	b := of(ours, "Handover")
	return []Row{
		times("handover-p50", q, "hand-over across processes, p50: to a script that publishes to a bare subscriber", ratio(b, "mutex-p50-µs", "publish-p50-µs"), atMost(1.25), atMost(2.6)),
		times("handover-p99", q, "hand-over across processes, p99: to a script that publishes to a bare subscriber", ratio(b, "mutex-p99-µs", "publish-p99-µs"), atMost(1.5), atMost(4)),
	}
}

func idle() []Row {
	const q = "idle"
	own, beside := of(ours, "IdleWaiters"), of(peers, "IdleWaiters")
	rows := []Row{
		// Counted over a few seconds, in which there is room for one sign of life
		// more or less of each process; one speaks for up to 250 waiters.
		{
			Name: "idle-four", Question: q, What: "1,000 idle waiters in four processes: commands a second and process",
			Formula: metric(own, "four-commands/s"), Bar: atMost(1), Guard: atMost(1.5), Counted: true,
		},
		{
			Name: "idle-one", Question: q, What: "1,000 idle waiters in one process: commands a second",
			Formula: metric(own, "one-commands/s"), Bar: atMost(1), Guard: atMost(4), Counted: true,
		},
	}
	for _, who := range []string{"mutex", "redislock", "redsync", "rueidislock"} {
		rows = append(rows, Row{
			Name: "idle-peers-" + who, Question: q, What: "1,000 idle waiters, commands a second: " + who,
			Formula: metric(beside, who+"-commands/s"),
		})
	}
	return rows
}

func leases() []Row {
	const q = "leases"
	b := of(ours, "HeldLeases")
	return []Row{
		counted("leases-goroutines", q, "10,000 held leases: goroutines", metric(b, "goroutines"), "", atMost(8)),
		counted("leases-renewals", q, "10,000 held leases: renewals a round trip", metric(b, "renewals/trip"), "", atLeast(500)),
		{
			Name: "leases-cpu", Question: q, What: "10,000 held leases, TTL 30 s: CPU, of one core", Formula: metric(b, "cpu-%"), Unit: "%",
			Bar: atMost(2), Guard: atMost(10),
		},
		{
			Name: "leases-memory", Question: q, What: "Go memory of a held lease", Formula: metric(b, "B/lease"), Unit: "B",
			Bar: atMost(1024), Guard: atMost(1200),
		},
		// 145 B without a label; the default label, host:pid, may add 20 B.
		counted("leases-server", q, "Redis memory of a held permit with its label", metric(b, "server-B/permit"), "B", atMost(165)),
		{Name: "leases-shared", Question: q, What: "Go memory of a held lease where all are of one key", Formula: metric(b, "shared-B/lease"), Unit: "B"},
	}
}

func grows() []Row {
	// Beside those many, in turn, 10 are held on another server.
	const q = "growth"
	b := of(ours, "GrowHolders/holders=100000")
	return []Row{
		times("growth-pair", q, "a permit at 100,000 holders of one key, beside one at 10", ratio(b, "pair-µs", "base-pair-µs"), atMost(1.5), atMost(2.5)),
		times("growth-server", q, "server time of a permit at 100,000 holders of one key, beside one at 10", ratio(b, "server-µs", "base-server-µs"), atMost(1.5), atMost(2)),
	}
}

func hits() []Row {
	const q = "hit"
	var rows []Row
	for _, size := range hitSizes {
		rows = append(rows, times("hit-"+size, q, "a hit of "+size+", to a bare GET and decode", ratio(of(ours, "Hit/"+size), "hit-µs", "floor-µs"), atMost(1.05), atMost(1.35)))
	}
	rows = append(rows,
		counted("hit-client-side", q, "round trips of a hit with go-redis's client-side cache", metric(of(ours, "HitClientSide"), "GETs/hit"), "", exactly(0)),
		Row{Name: "hit-allocs", Question: q, What: "allocations of a hit", Formula: metric(of(ours, "HitAllocs"), "allocs/op"), Guard: atMost(12), Counted: true},
	)
	for _, size := range hitSizes {
		for _, who := range []string{"gorediscache", "rockscache"} {
			rows = append(rows, times("hit-"+who+"-"+size, q, fmt.Sprintf("a hit of %s, beside %s's", size, nameOf(who)), ratio(of(peers, "Hit/"+size), "hit-µs", who+"-µs"), Limit{}, atMost(1.5)))
		}
	}
	return rows
}

var hitSizes = []string{"100B", "4kB", "100kB"}
