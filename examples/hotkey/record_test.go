package main

import (
	"testing"
	"time"
)

// begun is a record in its first epoch, one minute old.
func begun(ttl time.Duration, m mode) *record {
	r := newRecord(ttl, 2)
	r.began = time.Now().Add(-time.Minute)
	r.open(order{1, m})
	return r
}

func TestAnswersAreCountedWhereTheyBelong(t *testing.T) {
	r := begun(sec, on)
	number, end := r.loadBegins(1, 2)
	end(true)
	for _, from := range []source{fromLoad, fromOther, fromOther, fromCache} {
		r.answered(2, r.now(), reply{1, number, from})
	}
	r.open(order{2, off})
	r.answered(1, r.now(), reply{1, number, fromStale}) // it was asked in the first epoch
	r.answered(1, r.now(), reply{2, number, fromCache})
	r.answered(1, r.now(), reply{99, number, fromCache}) // of an epoch that nobody knows
	late, end := r.loadBegins(1, 1)
	end(true)
	if late != number+1 {
		t.Errorf("load %d after load %d", late, number)
	}

	got := r.result(on)
	if want := (counts{Hits: 1, Stale: 1, Waits: 2, Loaded: 1, Loads: 2}); got.all != want {
		t.Errorf("first epoch: %+v; want %+v", got.all, want)
	}
	if got.loads != 2 || got.expiries != 1 || got.seen != 1 {
		t.Errorf("first epoch: %d loads, %d expiries, values of %d", got.loads, got.expiries, got.seen)
	}
	if got := r.result(off).all; got != (counts{Hits: 1}) {
		t.Errorf("second epoch: %+v", got)
	}
	if r.loadsNow() != 0 {
		t.Errorf("%d loads run", r.loadsNow())
	}
}

func TestAValueServedForTooLong(t *testing.T) {
	r := begun(sec, on)
	e := r.current
	first := 10 * sec
	e.value(reply{1, 7, fromOther}, first-sec, first)
	e.value(reply{1, 7, fromCache}, first+sec, first+sec)     // could still be fresh
	e.value(reply{1, 7, fromStale}, first+9*sec, first+9*sec) // doesn't say that it is
	if e.overdue != 0 {
		t.Errorf("%d answers overdue", e.overdue)
	}
	e.value(reply{1, 7, fromCache}, first+2*sec, first+2*sec)
	if e.overdue != 1 || e.seen != 1 {
		t.Errorf("%d answers overdue, values of %d loads; want 1 and 1", e.overdue, e.seen)
	}
}

// A phase begins with a cold cache, for which everybody waits, whatever the mode.
func TestLatencyIsThatOfAWarmCache(t *testing.T) {
	r := begun(sec, on)
	r.answered(1, 0, reply{1, 1, fromOther})
	if n := r.current.latency.total; n != 0 {
		t.Errorf("%d requests counted that came before there was a value", n)
	}
	r.answered(1, 0, reply{1, 1, fromOther})
	r.answered(1, r.now(), reply{1, 1, fromCache})
	if n := r.current.latency.total; n != 1 {
		t.Errorf("%d requests counted; want 1", n)
	}
}

func TestOldValuesAreForgotten(t *testing.T) {
	r := begun(sec, off)
	e := r.current
	for i := range int64(20_000) {
		at := time.Duration(i) * 20 * time.Millisecond
		e.value(reply{1, i, fromLoad}, at, at)
	}
	if e.seen != 20_000 || len(e.values) > 5001 {
		t.Errorf("values of %d loads, %d remembered", e.seen, len(e.values))
	}
}

func TestHistogram(t *testing.T) {
	var h histogram
	if h.quantile(0.5) != 0 {
		t.Error("of nothing")
	}
	for i := range 1000 {
		h.add(time.Duration(i+1) * time.Millisecond)
	}
	h.add(0)
	h.add(1000 * time.Hour)
	for q, want := range map[float64]time.Duration{0.5: 500 * time.Millisecond, 0.99: 990 * time.Millisecond} {
		if got := h.quantile(q); got < want || got > want*104/100 {
			t.Errorf("quantile %v: %v; want %v", q, got, want)
		}
	}
}

func TestWatch(t *testing.T) {
	r := begun(sec, on)
	r.watch = newWatch(2)
	_, end := r.loadBegins(1, 1)
	_, end2 := r.loadBegins(1, 2)
	r.answered(1, r.now()-20*time.Millisecond, reply{1, 1, fromCache})
	end(true)
	p := r.picture()
	if len(p.Bars) != 1 || p.Bars[0].Loads != 2 || p.Last != 2 || p.Running != 1 || p.Rate != 1 || p.Processes[0].Rate != 1 {
		t.Errorf("%+v", p)
	}
	if len(p.Frames) != 1 || p.Frames[0].AtOnce != 2 || p.Frames[0].Hits != 1 || p.Frames[0].P99 < 20 {
		t.Errorf("frames: %+v", p.Frames)
	}
	end2(true)
	r.open(order{2, off})
	_, end = r.loadBegins(2, 1)
	end(true)
	for range 2 * perSecond {
		p = r.picture()
	}
	if p.Rate != 0 || len(p.Bars) != 2 || p.Bars[1].Mode != off || p.Last != 1 {
		t.Errorf("%+v", p)
	}
	r.began = r.began.Add(-2 * shown)
	if p = r.picture(); len(p.Frames) != 1 || len(p.Bars) != 0 {
		t.Errorf("%d frames and %d bars of long ago", len(p.Frames)-1, len(p.Bars))
	}
}
