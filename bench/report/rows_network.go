package main

// network is the rows over a network with a round trip of about 1 ms. They lead: that is
// how a service runs, and there the round trips are nearly all of the time.
func network() []Row {
	const q = "network"
	lone, contended := of(peers, "NetworkLonePair"), of(peers, "NetworkContended")
	handed, stampeded := of(peers, "NetworkHandover"), of(peers, "NetworkStampede")
	rows := []Row{
		times("network-contended", q, "one key, 64 goroutines: turns a second to those that the holding and one round trip allow",
			ratio(contended, "mutex-turns/s", "floor-turns/s"), atLeast(0.95), atLeast(0.6)),
		times("network-longest", q, "the same: longest wait to the mean one", metric(contended, "mutex-longest/mean"), atMost(1.15), atMost(3)),
		times("network-fewest", q, "the same: fewest turns of a goroutine to the most", metric(contended, "mutex-fewest/most"), atLeast(0.9), atLeast(0.5)),
		times("network-lone", q, "lone lock + unlock, to two bare round trips", ratio(lone, "mutex-µs", "floor-µs"), atMost(1.02), atMost(1.5)),
		times("network-lone-redislock", q, "lone lock + unlock, beside redislock", ratio(lone, "mutex-µs", "redislock-µs"), Limit{}, Limit{}),
		times("network-handover", q, "hand-over, p50: to a PUBLISH that a bare subscriber waits for", ratio(handed, "mutex-p50-µs", "floor-p50-µs"), Limit{}, Limit{}),
		{
			Name: "network-stampede-loads", Question: q, What: "cold key, 1,600 goroutines: loads",
			Formula: metric(stampeded, "leasehold-loads"), Bar: exactly(1), Guard: exactly(1), Counted: true,
		},
		times("network-stampede", q, "cold key: p99 of the followers after the load, to one PING in each process that wakes as many",
			ratio(stampeded, "leasehold-p99-ms", "ping-p99-ms"), Limit{}, Limit{}),
	}
	for _, who := range []string{"redislock", "redsync", "rueidislock"} {
		rows = append(rows,
			times("network-contended-"+who, q, "turns a second, to "+who+"'s", ratio(contended, "mutex-turns/s", who+"-turns/s"), Limit{}, Limit{}),
			times("network-longest-"+who, q, "longest wait to the mean one, "+who, metric(contended, who+"-longest/mean"), Limit{}, Limit{}),
			times("network-fewest-"+who, q, "fewest turns of a goroutine to the most, "+who, metric(contended, who+"-fewest/most"), Limit{}, Limit{}),
			times("network-handover-"+who, q, "hand-over, p50, beside "+who+"'s", ratio(handed, "mutex-p50-µs", who+"-p50-µs"), Limit{}, Limit{}))
	}
	for _, who := range cachers[1:] {
		rows = append(rows, times("network-stampede-"+who, q, "cold key: p99 of the followers, beside "+nameOf(who)+"'s",
			ratio(stampeded, "leasehold-p99-ms", who+"-p99-ms"), Limit{}, Limit{}))
	}
	return rows
}
