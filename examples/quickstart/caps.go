package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/leasehold-go/leasehold/examples/internal/demo"
)

// capsPart is the first part of the show: workers under the tenants' caps, one
// of which is killed in the middle.
type capsPart struct {
	scr    *screen
	fleet  *fleet
	board  *board
	begin  time.Time
	alive  int              // workers that are not gone
	victim int              // the worker to be killed, once it is chosen
	timer  <-chan time.Time // when it is to be killed, once its long job has begun
	killed bool             // it was
	over   bool             // the workers have been told to end

	history []event // in the order of arrival: of one worker in its order, mixed between them
	pending []event // what the board does not show yet
}

// boardLag is how far the board is behind, so that it can put the events of all
// pipes in order: else a permit handed over would often be seen with both.
const boardLag = 150 * time.Millisecond

// capsShow gives the first part, and returns all that was reported.
func capsShow(ctx context.Context, scr *screen, srv *demo.Server, name string) ([]event, error) {
	p := &capsPart{scr: scr, board: newBoard(), alive: workers}
	p.fleet = newFleet(ctx, "worker")
	defer p.fleet.close()
	for num := 1; num <= workers; num++ {
		if err := p.fleet.start(num, srv, name); err != nil {
			return nil, err
		}
	}
	p.begin = time.Now()
	err := p.run(ctx)
	scr.leave()
	return p.history, err
}

func (p *capsPart) run(ctx context.Context) error {
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for p.alive > 0 {
		select {
		case e := <-p.fleet.events:
			if err := p.take(e); err != nil {
				return err
			}
		case <-tick.C:
			to := now() - stamp(boardLag)
			if err := p.drain(); err != nil {
				return err
			}
			p.catchUp(to)
			if p.over {
				continue // the board stands as it last was, with everybody at work
			}
			p.scr.draw(p.board)
			p.choose()
			if p.enough() {
				p.over = true
				p.fleet.stop()
			}
		case <-p.timer:
			p.kill()
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// drain takes what has come already, so that the board misses none of it after a
// moment in which this process did not run.
func (p *capsPart) drain() error {
	for range len(p.fleet.events) {
		if err := p.take(<-p.fleet.events); err != nil {
			return err
		}
	}
	return nil
}

func (p *capsPart) take(e event) error {
	p.note(e)
	switch e.Kind {
	case started:
		if e.Takes == victimJob {
			p.timer = time.After(killAt)
		}
	case gone:
		p.alive--
		if !(p.killed && e.Child == p.victim) && (!p.over || e.Fault != "") {
			return fmt.Errorf("worker %d ended by itself: %s", e.Child, e.Fault)
		}
	case badClock:
		return errClock
	}
	return nil
}

func (p *capsPart) note(e event) {
	p.history = append(p.history, e)
	p.pending = append(p.pending, e)
}

// choose picks the victim: the last in line, so that the order is there before
// its turn is.
func (p *capsPart) choose() {
	line := p.board.row(victimTenant).waiting
	if p.victim != 0 || time.Since(p.begin) < victimAfter || len(line) == 0 {
		return
	}
	p.victim = line[len(line)-1]
	_, _ = fmt.Fprintln(p.fleet.kids[p.victim].stdin, "longer") // had it ended, its gone would tell
}

// kill gives the victim no chance to release, or to say goodbye in any way.
func (p *capsPart) kill() {
	if !p.busy(p.victim) {
		p.victim = 0 // it stalled and lost its lease: take another
		return
	}
	p.killed = true
	p.note(event{At: now(), Kind: killed, Child: p.victim})
	_ = p.fleet.kids[p.victim].cmd.Process.Kill() // its gone tells
}

// busy: as far as is known, the worker runs a job for the victim's tenant.
func (p *capsPart) busy(num int) bool {
	for _, e := range slices.Backward(p.history) {
		if e.Child == num && e.Tenant == victimTenant {
			return e.Kind == started
		}
	}
	return false
}

// enough: everything has been shown, or will not come any more.
func (p *capsPart) enough() bool {
	since := time.Since(p.begin)
	missing := !p.killed || p.board.missing()
	return since >= showFor && (!missing || since >= showFor+giveUp)
}

// catchUp brings the board to the time to.
func (p *capsPart) catchUp(to stamp) {
	slices.SortStableFunc(p.pending, func(a, b event) int { return int(a.At - b.At) })
	for len(p.pending) > 0 && p.pending[0].At <= to {
		for _, news := range p.board.apply(p.pending[0]) {
			p.scr.say(news)
		}
		p.pending = p.pending[1:]
	}
}
