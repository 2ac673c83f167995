package main

import "fmt"

// Capacity is a table of the model: what one primary does and what was predicted.
func (p Page) Capacity() string {
	cells := [][]string{{"a second", "measured", "the server's core was busy", "predicted", "apart"}}
	for _, c := range carried {
		b := of(ours, "Capacity/"+c.sub)
		measured, ok := p.in.Spread(b, c.metric+"/s")
		predicted, also := p.in.Spread(b, c.metric+"-predicted/s")
		factor, _, err := apart(b, c.metric+"/s", c.metric+"-predicted/s").Evaluate(p.in)
		if !ok || !also || err != nil {
			continue
		}
		busy := "–"
		if s, ok := p.in.Spread(b, "server-cpu-%"); ok {
			busy = number(s.Median, "%")
		}
		row := []string{c.what, number(round(measured.Median), ""), busy, number(round(predicted.Median), ""), Figure{Spread: spread(factor)}.Ratio()}
		cells = append(cells, row)
	}
	if len(cells) == 1 {
		return ""
	}
	return markdown(cells)
}

// Waiters says how many of them one primary carries if it does nothing else: as
// many as have their signs of life answered in time.
func (p Page) Waiters() string {
	cells := [][]string{{"waiters of a process on a key", "signs of life a second", "waiters that one primary carries"}}
	for _, n := range []string{"250", "1"} {
		b := of(ours, "Capacity/waiters="+n)
		asks, ok := p.in.Spread(b, "asks/s")
		waiters, also := p.in.Spread(b, "waiters")
		if ok && also {
			cells = append(cells, []string{n, number(round(asks.Median), ""), number(round(waiters.Median), "")})
		}
	}
	if len(cells) == 1 {
		return ""
	}
	return markdown(cells)
}

// HotKey is what one key can have, which lies on one primary however many there
// are.
func (p Page) HotKey() string {
	cells := [][]string{{"one hot key", "a second", "bounded by"}}
	if s, ok := p.in.Spread(of(ours, "Handover"), "mutex-p50-µs"); ok && s.Median > 0 {
		cells = append(cells, []string{"turns of a lock held for no time, between processes", number(round(1e6/s.Median), ""), fmt.Sprintf("the hand-over, %s", number(s.Median, "µs"))})
	}
	if s, ok := p.in.Spread(of(ours, "Contended"), "mutex-turns/s"); ok {
		cells = append(cells, []string{"turns of a lock held for 1 ms, measured", number(round(s.Median), ""), "the holding"})
	}
	if s, ok := p.in.Spread(of(ours, "Capacity/hits"), "hits-predicted/s"); ok {
		cells = append(cells, []string{"hits of a small value, each a GET, pipelined", number(round(s.Median), ""), "its primary"})
	}
	if len(cells) == 1 {
		return ""
	}
	return markdown(cells)
}

// round keeps two digits: more would pretend.
func round(v float64) float64 {
	unit := 1.0
	for v/unit >= 100 {
		unit *= 10
	}
	return float64(int(v/unit+0.5)) * unit
}
