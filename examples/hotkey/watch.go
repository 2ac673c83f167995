package main

import (
	"slices"
	"time"
)

const (
	frameTime = 250 * time.Millisecond
	shown     = 40 * time.Second // by the charts
	perSecond = int(time.Second / frameTime)
)

// watch is what the page shows beyond the counts: how the last seconds went. It
// belongs to a record, whose lock guards it. A nil one watches nothing.
type watch struct {
	frame     frame           // the one that is being filled
	took      []time.Duration // to answer, in this frame
	byProcess []int           // answers, in this frame
	frames    []frame
	recent    []recent // the last second, a frame each
	bars      []bar
}

// frame is a moment of the charts.
type frame struct {
	At     float64 `json:"at"` // its end, in seconds
	Mode   mode    `json:"mode"`
	Hits   int     `json:"hits"`
	Stale  int     `json:"stale"`
	Waits  int     `json:"waits"`
	Loaded int     `json:"loaded"`
	AtOnce int     `json:"at_once"` // the most loads, in this frame
	P99    float64 `json:"p99"`     // ms, of the last second
}

// bar is an expiry, and how many loads it had.
type bar struct {
	At    float64 `json:"at"`
	Mode  mode    `json:"mode"`
	Loads int     `json:"loads"`
}

// recent is what a frame adds to figures of the last second.
type recent struct {
	took      []time.Duration
	byProcess []int
}

func newWatch(processes int) *watch { return &watch{byProcess: make([]int, processes+1)} }

func (w *watch) loadBegins(at time.Duration, m mode, running int, due bool) {
	if w == nil {
		return
	}
	w.frame.AtOnce = max(w.frame.AtOnce, running)
	if n := len(w.bars); !due && n > 0 && w.bars[n-1].Mode == m {
		w.bars[n-1].Loads++
		return
	}
	w.bars = append(w.bars, bar{at.Seconds(), m, 1})
}

func (w *watch) answered(process int, from source, took time.Duration) {
	if w == nil {
		return
	}
	switch from {
	case fromCache:
		w.frame.Hits++
	case fromStale:
		w.frame.Stale++
	case fromOther:
		w.frame.Waits++
	case fromLoad:
		w.frame.Loaded++
	}
	w.took = append(w.took, took)
	w.byProcess[process]++
}

// next ends a frame and begins another.
func (w *watch) next(at time.Duration, m mode, running int) {
	w.recent = append(w.recent, recent{w.took, w.byProcess})
	w.recent = w.recent[max(0, len(w.recent)-perSecond):]
	w.frame.At, w.frame.Mode, w.frame.P99 = at.Seconds(), m, millis(w.quantile(0.99))
	w.frames = append(w.frames, w.frame)
	from := (at - shown).Seconds()
	w.frames = slices.DeleteFunc(w.frames, func(f frame) bool { return f.At < from })
	w.bars = slices.DeleteFunc(w.bars, func(b bar) bool { return b.At < from })
	w.frame = frame{AtOnce: running}
	w.took, w.byProcess = nil, make([]int, len(w.byProcess))
}

// quantile is of the last second.
func (w *watch) quantile(q float64) time.Duration {
	var all []time.Duration
	for _, r := range w.recent {
		all = append(all, r.took...)
	}
	if len(all) == 0 {
		return 0
	}
	slices.Sort(all)
	return all[min(int(q*float64(len(all))), len(all)-1)]
}

// rate is a process's answers in the last second.
func (w *watch) rate(process int) (n int) {
	for _, r := range w.recent {
		n += r.byProcess[process]
	}
	return n
}

func millis(d time.Duration) float64 { return float64(d.Round(10*time.Microsecond)) / 1e6 }
