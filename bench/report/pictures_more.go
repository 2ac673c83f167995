package main

func drawLeases(c *chart, in *Input, _ []Figure) error {
	var all marks
	for _, m := range []struct{ unit, name, who string }{
		{"B/lease", "in Go, a key each", "mutex"},
		{"shared-B/lease", "in Go, one key", "semaphore"},
		{"server-B/permit", "in Redis, one key", "floor"},
	} {
		if s, ok := in.Spread(of(ours, "HeldLeases"), m.unit); ok {
			all = append(all, mark{name: m.name, who: m.who, Spread: s})
		}
	}
	c.drawMarks("", "bytes of a held lease", all, false)
	return nil
}

// grown are the benchmarks whose sub-benchmarks are sizes, "GrowKeys/keys=10".
var grown = []struct{ name, of, what string }{
	{"GrowHolders", "holders", "holders of one key"},
	{"GrowWaiters", "waiters", "waiters on one key"},
	{"GrowKeys", "keys", "keys held"},
	{"GrowHandles", "handles", "handles on one client"},
}

// drawGrowth shows those from..to of grown, to the smallest beside which each ran.
func drawGrowth(from, to int) func(*chart, *Input, []Figure) error {
	return func(c *chart, in *Input, _ []Figure) error {
		for _, g := range grown[from:to] {
			err := c.drawSizes(in, of(ours, g.name), "", g.what, "× the smallest", func(b Bench, who string) (float64, bool) {
				ratios, _, err := ratio(b, who+"-µs", "base-"+who+"-µs").Evaluate(in)
				return median(ratios), err == nil
			}, false, "pair", "server")
			if err != nil {
				return err
			}
		}
		return nil
	}
}

func median(values []float64) float64 {
	if len(values) == 0 {
		return 0
	}
	return spread(values).Median
}

func drawHits(c *chart, in *Input, _ []Figure) error {
	for _, size := range hitSizes {
		b := of(peers, "Hit/"+size)
		if len(in.Of(b)) == 0 {
			b = of(ours, "Hit/"+size)
		}
		all := marksOf(in, b, "µs", "floor", "hit", "gorediscache", "rockscache")
		if len(all) > 0 && all[0].who == "floor" {
			all[0].name = "bare GET"
		}
		c.drawMarks(size, "µs a hit", all, false)
	}
	return nil
}

func drawPublication(c *chart, in *Input, _ []Figure) error {
	own := of(ours, "Stampede")
	var all marks
	for _, m := range []struct{ unit, name, who string }{
		{"p50-ms", "p50", "leasehold"},
		{"p99-ms", "p99", "leasehold"},
		{"p100-ms", "last", "leasehold"},
		{"floor-p99-ms", "bare PUBLISH, p99", "floor"},
	} {
		if s, ok := in.Spread(own, m.unit); ok {
			all = append(all, mark{name: m.name, who: m.who, Spread: s})
		}
	}
	c.drawMarks("", "ms after the publication", all, false)
	return nil
}

func drawStampede(c *chart, in *Input, _ []Figure) error {
	b := of(peers, "Stampede")
	var all marks
	for _, who := range cachers {
		for _, q := range []string{"p50", "p99", "last"} {
			if s, ok := in.Spread(b, who+"-"+q+"-ms"); ok {
				name := q
				if q == "p50" {
					name = nameOf(who) + " p50"
				}
				all = append(all, mark{name: name, who: who, Spread: s})
			}
		}
	}
	c.drawMarks("until followers have it", "ms after the end of the first load", all, true)
	c.drawMarks("origin loads", "loads", marksOf(in, b, "loads", cachers...), false)
	return nil
}

func drawCapacity(c *chart, in *Input, _ []Figure) error {
	for _, what := range carried[:3] {
		var all marks
		for _, m := range []struct{ unit, name, who string }{{"/s", "measured", "mutex"}, {"-predicted/s", "predicted", "floor"}} {
			if s, ok := in.Spread(of(ours, "Capacity/"+what.sub), what.metric+m.unit); ok {
				all = append(all, mark{name: m.name, who: m.who, Spread: s})
			}
		}
		for i := range all {
			all[i].Median, all[i].Min, all[i].Max = all[i].Median/1000, all[i].Min/1000, all[i].Max/1000
		}
		c.drawMarks(what.what, "thousand a second", all, false)
	}
	return nil
}
