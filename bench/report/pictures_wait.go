package main

import (
	"math"

	"gonum.org/v1/plot/plotter"
)

// percentiles that a distribution is told by, as in the harness.
var percentiles = []struct {
	name string
	p    float64
}{{"p0", 0}, {"p10", 10}, {"p25", 25}, {"p50", 50}, {"p75", 75}, {"p90", 90}, {"p99", 99}, {"p100", 100}}

// rivals is who contends for one key, and in which run: with the peers where
// they were measured.
func rivals(in *Input) (Bench, []string) {
	if b := of(peers, "Contended"); len(in.Of(b)) > 0 {
		return b, []string{"mutex", "redislock", "redsync", "rueidislock", "local"}
	}
	return of(ours, "Contended"), []string{"mutex", "local"}
}

// drawWaits shows how many turns took at most how long, from the call to the end.
func drawWaits(c *chart, in *Input, _ []Figure) error {
	b, who := rivals(in)
	least, most := math.Inf(1), 0.0
	curves := map[string]plotter.XYs{}
	for _, w := range who {
		for _, q := range percentiles {
			if s, ok := in.Spread(b, w+"-"+q.name+"-ms"); ok && s.Median > 0 {
				curves[w] = append(curves[w], plotter.XY{X: s.Median, Y: q.p})
				least, most = min(least, s.Median), max(most, s.Median)
			}
		}
	}
	if len(curves) == 0 {
		return nil
	}
	p := c.panel("", "ms from the call to the end of the turn", "% of turns")
	for _, w := range who {
		if len(curves[w]) > 0 {
			if err := c.curve(p, w, curves[w]); err != nil {
				return err
			}
		}
	}
	logarithmic(&p.X, least/1.2, most*1.2)
	p.Y.Min, p.Y.Max = 0, 102
	return nil
}

// drawTurns shows what each goroutine got. A benchmark's op is a tenth of a
// second of each crowd, so an even share is the same at any length of the run.
func drawTurns(c *chart, in *Input, _ []Figure) error {
	b, who := rivals(in)
	lines := in.Of(b)
	most := 0.0
	curves := map[string]plotter.XYs{}
	for _, w := range who {
		for _, q := range percentiles {
			var shares []float64
			for _, l := range lines {
				if turns, ok := l.Metrics[w+"-turns-"+q.name]; ok {
					shares = append(shares, turns/(float64(l.Iters)/10))
				}
			}
			if len(shares) == len(lines) && len(lines) > 0 {
				v := spread(shares).Median
				curves[w] = append(curves[w], plotter.XY{X: q.p, Y: v})
				most = max(most, v)
			}
		}
	}
	if len(curves) == 0 {
		return nil
	}
	p := c.panel("", "% of goroutines, those with the fewest turns first", "turns a second of a goroutine")
	for _, w := range who {
		if len(curves[w]) > 0 {
			if err := c.curve(p, w, curves[w]); err != nil {
				return err
			}
		}
	}
	p.Y.Min, p.Y.Max = 0, most*1.1
	return nil
}

func drawCalls(c *chart, in *Input, _ []Figure) error {
	b, who := rivals(in)
	c.drawMarks("", "script calls a turn", marksOf(in, b, "calls/turn", who[:len(who)-1]...), false)
	return nil
}

func drawHandover(c *chart, in *Input, _ []Figure) error {
	b := of(ours, "Handover")
	for _, p := range []string{"p50", "p99"} {
		c.drawMarks(p, "µs", marksIn(in, b, "-"+p+"-µs", "ping", "publish", "mutex"), false)
	}
	return nil
}

// marksIn is marksOf with all of the metric's name behind who.
func marksIn(in *Input, b Bench, rest string, who ...string) (all marks) {
	for _, w := range who {
		if s, ok := in.Spread(b, w+rest); ok {
			all = append(all, mark{name: nameOf(w), who: w, Spread: s})
		}
	}
	return all
}

func drawIdle(c *chart, in *Input, _ []Figure) error {
	own := of(ours, "IdleWaiters")
	var all marks
	for _, m := range []struct{ unit, name string }{{"four-commands/s", "4 processes, each"}, {"one-commands/s", "1 process"}} {
		if s, ok := in.Spread(own, m.unit); ok {
			all = append(all, mark{name: m.name, who: "mutex", Spread: s})
		}
	}
	c.drawMarks("ours", "commands a second", all, false)
	c.drawMarks("beside peers, four clients", "commands a second, all", marksOf(in, of(peers, "IdleWaiters"), "commands/s", "mutex", "redislock", "redsync", "rueidislock"), true)
	return nil
}
