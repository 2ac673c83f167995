package main

import (
	"math"
	"time"
)

// histogram counts durations in steps of 3%, so that hours of them need no more
// room than seconds.
type histogram struct {
	counts [800]int // up to hours
	total  int
}

const (
	step     = 1.03
	smallest = float64(10 * time.Microsecond)
)

func (h *histogram) add(d time.Duration) {
	i := 0
	if float64(d) > smallest {
		i = int(math.Log(float64(d)/smallest)/math.Log(step)) + 1
	}
	h.counts[min(i, len(h.counts)-1)]++
	h.total++
}

// quantile is a duration that the part q of all don't exceed.
func (h *histogram) quantile(q float64) time.Duration {
	rank := int(math.Ceil(q * float64(h.total)))
	for i, n := range h.counts {
		if rank -= n; n > 0 && rank <= 0 {
			return time.Duration(smallest * math.Pow(step, float64(i)))
		}
	}
	return 0
}
