package main

import (
	"fmt"
	"slices"
	"strings"
)

// board is who is in use and who waits, as of the last event that was applied.
// It is for watching; the figures at the end are measured from the history.
type board struct {
	rows     []*row
	killedAt map[int]stamp
}

type row struct {
	tenant
	running []int // workers, in the order in which they got their permits
	waiting []int // workers, in the order in which they came
	jobs    int

	// Killed workers whose permits are not free yet: they held them, or were
	// handed them since, having died in line.
	held, handed []int
}

func newBoard() *board {
	b := &board{killedAt: map[int]stamp{}}
	for _, t := range tenants {
		b.rows = append(b.rows, &row{tenant: t})
	}
	return b
}

func (b *board) row(tenant string) *row {
	for _, r := range b.rows {
		if r.name == tenant {
			return r
		}
	}
	return &row{}
}

// dead is the killed workers whose permits are not free yet.
func (r *row) dead() []int { return slices.Concat(r.held, r.handed) }

// missing: a dead worker's permit has not been seen with another yet.
func (b *board) missing() bool {
	return slices.ContainsFunc(b.rows, func(r *row) bool { return len(r.dead()) > 0 })
}

// apply takes the next event and returns what is worth a line.
func (b *board) apply(e event) (news []string) {
	r := b.row(e.Tenant)
	switch e.Kind {
	case waits:
		r.waiting = append(r.waiting, e.Child)
	case quits:
		r.waiting = without(r.waiting, e.Child)
	case started:
		return b.start(r, e)
	case ended:
		r.running = without(r.running, e.Child)
		if !e.Cut {
			r.jobs++
		}
	case killed:
		b.killedAt[e.Child] = e.At
	case gone:
		if _, ok := b.killedAt[e.Child]; ok {
			news = append(news, b.bury(e.Child))
		}
	}
	return news
}

// start moves a worker from the line to those in use.
func (b *board) start(r *row, e event) (news []string) {
	// Nobody tells that a dead worker was handed a permit. But that one behind
	// it in line was served shows it.
	for len(r.waiting) > 0 && b.killedAt[r.waiting[0]] != 0 && r.waiting[0] != e.Child {
		r.handed = append(r.handed, r.waiting[0])
		r.waiting = r.waiting[1:]
	}
	r.waiting = without(r.waiting, e.Child)
	r.running = append(r.running, e.Child)
	if len(r.running) < r.cap {
		return nil
	}
	// With the cap in use by the living, the dead have nothing left.
	for _, num := range r.held {
		news = append(news, fmt.Sprintf("%s: worker %d took over from dead worker %d, %s after the kill",
			r.name, e.Child, num, seconds(e.At.sub(b.killedAt[num]))))
	}
	for _, num := range r.handed {
		news = append(news, fmt.Sprintf("%s: worker %d got dead worker %d's turn, %s after the kill",
			r.name, e.Child, num, seconds(e.At.sub(b.killedAt[num]))))
	}
	r.held, r.handed = nil, nil
	return news
}

// bury moves a killed worker to where its permits are, and says so.
func (b *board) bury(num int) string {
	var held, queued []string
	for _, r := range b.rows {
		if slices.Contains(r.waiting, num) {
			queued = append(queued, r.name)
		}
		if slices.Contains(r.running, num) {
			r.running = without(r.running, num)
			r.held = append(r.held, num)
			held = append(held, r.name)
		}
	}
	news := fmt.Sprintf("worker %d killed (SIGKILL)", num)
	if len(held) > 0 {
		news += ", holding " + strings.Join(held, ", ")
	}
	if len(queued) > 0 {
		news += ", waiting for " + strings.Join(queued, ", ")
	}
	return news
}

func without(all []int, num int) []int {
	return slices.DeleteFunc(all, func(n int) bool { return n == num })
}

// list is worker numbers, the dead ones marked.
func (b *board) list(nums []int) string {
	var s []string
	for _, n := range nums {
		if b.killedAt[n] != 0 {
			s = append(s, fmt.Sprint(n, deadMark))
		} else {
			s = append(s, fmt.Sprint(n))
		}
	}
	return strings.Join(s, " ")
}
