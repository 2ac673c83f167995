package main

import (
	"fmt"
	"strings"
)

// deadMark follows the number of a dead worker whose permit is not free yet.
const deadMark = "x"

// inPlace is the board as a terminal shows it, in 80 columns:
//
//	acme     ██    2/2 in use: 4 6       3 waiting: 1 2 5         37 jobs done
func (s *screen) inPlace(b *board) []string {
	block := []string{""}
	for _, r := range b.rows {
		free := max(0, r.cap-len(r.running)-len(r.dead()))
		bar := s.paint(green, strings.Repeat("█", len(r.running))) +
			s.paint(red, strings.Repeat("▒", len(r.dead()))) +
			strings.Repeat("░", free) + strings.Repeat(" ", max(0, 4-r.cap))
		users := s.users(b, r, 8)
		waiting := fmt.Sprintf("%-11s", b.list(r.waiting))
		block = append(block, fmt.Sprintf("  %-8s %s  %d/%d in use: %s  %d waiting: %s  %4d jobs done",
			r.name, bar, len(r.running)+len(r.dead()), r.cap, users, len(r.waiting), s.paint(faint, waiting), r.jobs))
	}
	return append(block, "")
}

// users lists who is in use, dead workers marked, padded to width.
func (s *screen) users(b *board, r *row, width int) string {
	running, dead := b.list(r.running), b.list(r.dead())
	gap := ""
	if running != "" && dead != "" {
		gap = " "
	}
	pad := max(0, width-len(running+gap+dead))
	return s.paint(green, running) + gap + s.paint(red, dead) + strings.Repeat(" ", pad)
}

// oneLine is the board where lines only follow each other, as in a CI log:
// for each tenant, who is in use and who waits.
func (s *screen) oneLine(b *board) string {
	var cells []string
	for _, r := range b.rows {
		cells = append(cells, fmt.Sprintf("%s| %-12s", s.users(b, r, 9), b.list(r.waiting)))
	}
	return strings.TrimRight(strings.Join(cells, " "), " ")
}

// titles is the heading of oneLine's columns.
func titles(b *board) string {
	first, second := "     ", "     "
	for _, r := range b.rows {
		first += fmt.Sprintf("  %-22s", fmt.Sprintf("%s, cap %d", r.name, r.cap))
		second += fmt.Sprintf("  %-22s", "in use   | waiting")
	}
	return strings.TrimRight(first, " ") + "\n" + strings.TrimRight(second, " ")
}
