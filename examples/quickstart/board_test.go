package main

import (
	"strings"
	"testing"
)

// Worker 1 dies while it holds one of acme's two permits and 2 is in line.
func TestBoardShowsTheDeadUntilTheirPermitsAreUsed(t *testing.T) {
	b := newBoard()
	s := newScreenTo(&strings.Builder{})
	see := func(want string) {
		t.Helper()
		line := strings.Join(strings.Fields(s.oneLine(b)), " ")
		if got, _, _ := strings.Cut(line, " | |"); !strings.HasPrefix(line, want) {
			t.Errorf("got %q; want %q", got, want)
		}
	}
	news := func(e event, want string) {
		t.Helper()
		if got := strings.Join(b.apply(e), "\n"); got != want {
			t.Errorf("news %q; want %q", got, want)
		}
	}
	for worker := 1; worker <= 4; worker++ {
		news(at(int64(worker), waits, worker, 1), "")
	}
	news(at(5, started, 1, 1), "")
	news(at(6, started, 2, 1), "")
	see("1 2 | 3 4")
	news(at(10, killed, 1, 0), "")
	news(at(11, gone, 1, 0), "worker 1 killed (SIGKILL), holding acme")
	see("2 1x | 3 4")
	news(at(20, ended, 2, 1), "")
	news(at(21, started, 3, 1), "")
	see("3 1x | 4")
	news(at(510, started, 4, 1), "acme: worker 4 took over from dead worker 1, 0.50 s after the kill")
	see("3 4 |")
	if b.missing() {
		t.Error("somebody is still missing")
	}

	// Worker 5 dies in line, and is handed what 3 gives back.
	for worker := 5; worker <= 7; worker++ {
		news(at(600, waits, worker, 1), "")
	}
	news(at(610, killed, 5, 0), "")
	news(at(611, gone, 5, 0), "worker 5 killed (SIGKILL), waiting for acme")
	see("3 4 | 5x 6 7")
	news(at(620, ended, 3, 1), "")
	news(at(630, ended, 4, 1), "")
	news(at(631, started, 6, 1), "")
	see("6 5x | 7")
	news(at(1610, started, 7, 1), "acme: worker 7 got dead worker 5's turn, 1.00 s after the kill")
	see("6 7 |")
}

func TestScreenRedrawsInPlaceOnlyOnATerminal(t *testing.T) {
	b := newBoard()
	b.apply(at(1, started, 1, 1))
	var out strings.Builder
	s := newScreenTo(&out)
	s.next = s.begin // due
	s.draw(b)
	s.say("news")
	if got := out.String(); strings.Contains(got, "\x1b") || strings.Contains(got, "█") || !strings.Contains(got, "acme, cap 2") {
		t.Errorf("not on a terminal: %q", got)
	}

	out.Reset()
	s.live = true
	s.draw(b)
	s.draw(b)
	if got := out.String(); !strings.Contains(got, "1/2 in use: 1 ") || !strings.Contains(got, "\x1b[5A") {
		t.Errorf("on a terminal: %q", got)
	}
	if got := out.String(); strings.Contains(got, "\x1b[32m") {
		t.Errorf("without colour: %q", got)
	}
}
