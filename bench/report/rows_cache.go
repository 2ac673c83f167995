package main

func stampede() []Row {
	const q = "stampede"
	own, long, killed := of(ours, "Stampede"), of(ours, "LongLoad"), of(ours, "KilledLoader")
	rows := []Row{
		counted("stampede-loads", q, "cold key, 1,600 goroutines: loads", metric(own, "loads"), "", exactly(1)),
		{
			Name: "stampede-p99", Question: q, What: "cold key, 1,600 goroutines: p99 of the followers after the publication, in round trips",
			Formula: roundTrips(own, "p99-ms", "ping-µs"), Bar: atMost(3), Guard: atMost(200),
		},
		times("stampede-floor", q, "cold key, 1,600 goroutines: p99 of the followers, to a bare PUBLISH that wakes as many", ratio(own, "p99-ms", "floor-p99-ms"), Limit{}, atMost(15)),
		counted("long-loads", q, "a load of 3 × the lease: loads", metric(long, "loads"), "", exactly(1)),
		counted("killed-successors", q, "holder killed: loads that begin after it", metric(killed, "successors"), "", exactly(1)),
		{
			Name: "killed-takeover", Question: q, What: "holder killed: until the successor's begins, beyond the lease",
			Formula: difference(killed, "takeover-ms", "lease-ms"), Unit: "ms", Bar: atMost(100), Guard: atMost(1000),
		},
		{
			Name: "killed-worst", Question: q, What: "holder killed: the slowest takeover, beyond the lease",
			Formula: difference(killed, "takeover-worst-ms", "lease-ms"), Unit: "ms", Bar: atMost(100), Guard: atMost(2500),
		},
	}
	for _, who := range cachers {
		rows = append(rows, Row{Name: "stampede-loads-" + who, Question: q, What: "cold key: loads, " + nameOf(who), Formula: metric(of(peers, "Stampede"), who+"-loads")})
	}
	for _, who := range cachers[1:] {
		rows = append(rows, times("stampede-p99-"+who, q, "cold key: p99 of the followers after the first load, beside "+nameOf(who)+"'s",
			ratio(of(peers, "Stampede"), "leasehold-p99-ms", who+"-p99-ms"), Limit{}, Limit{}))
	}
	for _, who := range cachers[:3] {
		rows = append(rows, Row{Name: "long-loads-" + who, Question: q, What: "a load of 3 × the lease, 4 processes: loads, " + nameOf(who), Formula: metric(of(peers, "LongLoad"), who+"-loads")})
	}
	return rows
}

// carried is what the capacity of a primary is told in: the metrics of the
// sub-benchmarks.
var carried = []struct{ sub, metric, what string }{
	{"turns", "turns", "turns (lock + unlock)"},
	{"renewals", "renewals", "renewals"},
	{"hits", "hits", "hits"},
	{"waiters=250", "asks", "signs of life of 250 waiters each"},
	{"waiters=1", "asks", "signs of life of one waiter each"},
}

// The model is to predict within a fifth.
func capacity() []Row {
	var rows []Row
	for _, c := range carried {
		rows = append(rows, times("capacity-"+c.sub, "capacity", "capacity: "+c.what+", predicted to measured",
			apart(of(ours, "Capacity/"+c.sub), c.metric+"/s", c.metric+"-predicted/s"), atMost(1.2), atMost(1.6)))
	}
	return rows
}

// cachers are who is compared under a stampede, the last one only there.
var cachers = []string{"leasehold", "gorediscache", "rockscache", "rockscache-10ms"}
