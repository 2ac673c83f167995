package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"time"
)

// screen prints lines that stay and, below them, the board: redrawn in place on
// a terminal, a line a second elsewhere.
type screen struct {
	out    io.Writer
	live   bool
	colour bool
	begin  time.Time
	block  []string  // what is drawn in place now
	next   time.Time // when the next line is due where nothing is
	titled bool
}

func newScreen(f *os.File) *screen {
	s := newScreenTo(f)
	if info, err := f.Stat(); err == nil && info.Mode()&os.ModeCharDevice != 0 {
		term := os.Getenv("TERM")
		s.live = ansi && term != "" && term != "dumb"
		s.colour = s.live && os.Getenv("NO_COLOR") == ""
	}
	return s
}

func newScreenTo(w io.Writer) *screen {
	begin := time.Now()
	return &screen{out: w, begin: begin, next: begin.Add(time.Second)}
}

// print prints a line that stays.
func (s *screen) print(format string, args ...any) {
	s.swap(fmt.Sprintf(format, args...)+"\n", s.block)
}

// say prints a line that stays, with the time.
func (s *screen) say(what string) {
	s.print("%s  %s", s.clock(), s.paint(bold, what))
}

func (s *screen) clock() string { return fmt.Sprintf("%4.1fs", time.Since(s.begin).Seconds()) }

// draw shows the board as it is now.
func (s *screen) draw(b *board) {
	switch {
	case s.live:
		s.swap("", s.inPlace(b))
	case time.Now().After(s.next):
		s.next = time.Now().Add(time.Second)
		if !s.titled {
			s.print("%s", titles(b))
			s.titled = true
		}
		s.print("%s  %s", s.clock(), s.oneLine(b))
	}
}

// leave lets the board stand as it is, and goes on below it.
func (s *screen) leave() { s.block = nil }

// swap replaces the block by lines that stay and another block, in one write so
// that nothing flickers. Lines too long for the terminal are cut there: wrapped,
// they would be more lines than the next swap goes up.
func (s *screen) swap(stays string, block []string) {
	var w strings.Builder
	if n := len(s.block); n > 0 {
		fmt.Fprintf(&w, "\x1b[%dA\x1b[J", n) // n lines up, and clear from there
	}
	w.WriteString(stays)
	if len(block) > 0 {
		w.WriteString("\x1b[?7l" + strings.Join(block, "\n") + "\n\x1b[?7h")
	}
	s.block = block
	_, _ = io.WriteString(s.out, w.String())
}

const (
	bold  = "1"
	green = "32"
	red   = "31"
	faint = "2"
)

func (s *screen) paint(how, what string) string {
	if !s.colour || what == "" {
		return what
	}
	return "\x1b[" + how + "m" + what + "\x1b[0m"
}
