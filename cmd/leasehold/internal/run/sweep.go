//go:build unix

package run

import (
	"fmt"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// all are the program's processes: the program itself, also in a session of its own, and its
// descendants that have not made themselves independent.
func (g *guard) all() []process {
	return descendants(unix.Getpid(), []int{g.session, g.program}, nil)
}

// signalAll sends a signal to the program's processes, and says how many it reached, and how
// many belong to another user. The shared process group is never signalled: it may hold the
// script that called the tool, and the rest of its pipeline.
func (g *guard) signalAll(sig syscall.Signal) (reached, refused int) {
	for _, p := range g.all() {
		switch err := p.send(sig); err {
		case nil:
			reached++
		case unix.EPERM:
			refused++
			g.outOfReach(p, sig)
		}
	}
	return reached, refused
}

// outOfReach says, once per process, that it can't be ended.
func (g *guard) outOfReach(p process, sig syscall.Signal) {
	switch {
	case g.told[p.pid] && sig != unix.SIGKILL, g.told[-p.pid]:
		return
	case sig == unix.SIGKILL:
		g.told[-p.pid] = true
		warn("process %d (%s) runs as another user and can't be ended: it may run beside the next holder", p.pid, p.name)
	default:
		g.told[p.pid] = true
		warn("process %d (%s) runs as another user: if the lease is lost, it can't be ended and may run beside the next holder; run the whole command as that user, as in sudo leasehold run …", p.pid, p.name)
	}
}

// lookAround tells of processes that could not be ended, while there is time. It looks ever
// more seldom: it reads all of /proc for that.
func (g *guard) lookAround() {
	if now := clock(); now >= g.next {
		g.pause = min(2*g.pause, time.Minute)
		g.next = now + g.pause
		g.signalAll(0)
	}
}

// sweep ends what is left: with SIGKILL where the lease ends, else with SIGTERM and, after the grace, SIGKILL.
// The tool keeps renewing meanwhile. When nothing is left, the guard reports the program's end. It looks again
// until it finds nothing, because a process may be forked while it looks.
func (g *guard) sweep(now time.Duration) time.Duration {
	sig := syscall.Signal(0)
	switch {
	case g.killing:
		sig = unix.SIGKILL
	case !g.asked:
		g.asked = true
		sig = unix.SIGTERM
	case now >= g.sweepUntil:
		sig = unix.SIGKILL
	}
	left, refused := g.signalAll(sig)
	if sig == unix.SIGTERM {
		g.signalAll(unix.SIGCONT)
	}
	if left > 0 && sig == unix.SIGKILL && !g.killing {
		g.killing = true
		fmt.Fprintln(os.Stderr, "leasehold: the program left processes behind, which did not end when they were told to; they are killed")
	}
	if g.ended && left == 0 && (refused == 0 || now >= g.sweepUntil) {
		g.reported = true
		g.say("exit %d", uint32(g.status))
		return tick
	}
	g.rest = min(2*max(soon, g.rest), tick)
	return g.rest
}

func (g *guard) isOrphaned() bool {
	now := clock()
	if now < g.orphaned {
		return false
	}
	g.orphaned = now + time.Second
	return isOrphaned(g.Group)
}

// killOrphans kills what the guard left when it died; this process has become the parent.
// before are the children that it had before the guard.
func killOrphans(before []int, program int) {
	session, _ := unix.Getsid(0)
	for end := time.Now().Add(2 * time.Second); time.Now().Before(end); time.Sleep(soon) {
		left := descendants(unix.Getpid(), []int{session, program}, before)
		for _, p := range left {
			_ = p.send(unix.SIGKILL)
		}
		for pid := 1; pid > 0; {
			pid, _ = unix.Wait4(-1, nil, unix.WNOHANG, nil)
		}
		if len(left) == 0 {
			return
		}
	}
}
