//go:build unix

package run

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// The guard is a small process between the tool and the program. It starts the program, gets
// the lease's deadline through a pipe, and ends the program with all that descends from it at
// the deadline, or when the pipe ends: so the program does not outlast its lease where the
// tool was killed or stopped. It knows nothing of Redis.
//
// It has a process group of its own: a signal to the group of the tool and the program does
// not reach it. Processes whose parents have ended become its children, so that it finds
// them, and knows when the last has ended.
//
// The tool's lines are
//
//	deadline NS   until when the lease is held, by the clock that both read; the first one starts the program
//	lost NS       the lease is lost; the program gets SIGTERM now and SIGKILL at that time
//	signal N      pass it to the program
//	go-on K       the program is to go on from its stop number K, if it still stands there
//	pausing       the tool stops now; it is to go on when the program does
//	resumed       the tool goes on
//
// and the guard's are
//
//	ready         it takes lines; the tool waits for that
//	started PID   the program runs
//	failed N      it does not; N is the system's error number, 0 = the lease is too short
//	paused N K    signal N stopped the program; K counts its stops
//	going-on      the program goes on
//	stopped       the guard ends the program because the lease ends
//	exit STATUS   the program has ended, and so has what it left behind

// task is what the guard has to know from the start, beside the program: path and arguments are arguments of its
// own, because they may hold bytes that no JSON can, and be more than one argument may.
type task struct {
	Grace         time.Duration
	Lost          string
	Group         int // the program's process group; 0 = one of its own
	Lines, Answer int // the guard's ends of the two pipes
}

// Guard is the main function of the guard process; its arguments are a task, the program's path and its arguments.
func Guard(args []string) int {
	// What stops the tool or the program must not stop the guard: it ends with the pipe.
	// The program must not inherit that, so that the signals are caught, not ignored.
	catch(neither, append([]syscall.Signal{unix.SIGPIPE, unix.SIGTTIN, unix.SIGTTOU, unix.SIGCONT}, passed...)...)
	g := &guard{lines: make(chan string), changes: make(chan os.Signal, 1)}
	if len(args) < 3 || json.Unmarshal([]byte(args[0]), &g.task) != nil {
		return CodeTool
	}
	g.path, g.argv = args[1], args[2:]
	syscall.CloseOnExec(g.Lines)
	syscall.CloseOnExec(g.Answer)
	g.answers = os.NewFile(uintptr(g.Answer), "answers")
	signal.Notify(g.changes, unix.SIGCHLD)
	if err := adopt(); err != nil {
		warn("processes whose parents have ended may not be found: %v", err)
	}
	go func() {
		defer close(g.lines)
		for in := bufio.NewScanner(os.NewFile(uintptr(g.Lines), "lines")); in.Scan(); {
			g.lines <- in.Text()
		}
	}()
	g.say("ready")
	g.watch()
	return 0
}

type guard struct {
	task
	path    string
	argv    []string
	lines   chan string
	answers *os.File
	changes chan os.Signal // children have ended, stopped or gone on

	program  int
	status   unix.WaitStatus
	ended    bool // the program has, with that status
	reported bool
	stops    int
	stopped  bool // it stands still, for the stops-th time
	pausing  bool // the tool stands still, because the program does
	toolGone bool

	deadline time.Duration // by clock(); 0 = not known yet
	terminal time.Duration // when SIGKILL is due after a SIGTERM; 0 = none was sent
	killing  bool
	said     bool

	// What it has seen of the program's processes: see sweep.go.
	session    int
	asked      bool          // SIGTERM went to what the program left
	sweepUntil time.Duration // by clock(): when that is killed
	told       map[int]bool  // the processes that it has said are out of its reach
	rest       time.Duration // from one look at what is left to the next
	next       time.Duration // by clock(): when it looks around next
	pause      time.Duration
	orphaned   time.Duration // by clock(): when it looks again whether the tool's group is
}

// tick is how long the guard sleeps at most: a machine that was suspended wakes up behind a deadline that no
// timer has noticed. soon is how long it sleeps at first while processes are to end.
const (
	tick = 250 * time.Millisecond
	soon = 2 * time.Millisecond
)

// watch ends when the tool is gone and nothing is left to end.
func (g *guard) watch() {
	timer := time.NewTimer(tick)
	for {
		select {
		case line, ok := <-g.lines:
			if !ok {
				g.lines, g.toolGone, g.pausing = nil, true, false
				break
			}
			g.take(line)
		case <-g.changes:
		case <-timer.C:
		}
		g.look()
		next := g.due()
		if g.toolGone && (g.program == 0 || g.reported || g.Lost == LostWarn) {
			return
		}
		timer.Reset(max(0, min(tick, next)))
	}
}

func (g *guard) take(line string) {
	what, text, _ := strings.Cut(line, " ")
	n, _ := strconv.ParseInt(text, 10, 64)
	switch what {
	case "deadline":
		first := g.deadline == 0
		if g.terminal == 0 { // a program that was told to stop has no more time than it was told
			g.deadline = time.Duration(n)
		}
		if first {
			g.start()
		}
	case "lost":
		g.deadline = min(g.deadline, time.Duration(n))
		g.terminate()
	case "signal":
		if g.program != 0 && !g.ended { // after that its number may be another process's
			_ = unix.Kill(g.program, syscall.Signal(n))
		}
	case "go-on":
		g.look() // the stop that the tool means may be over, and the next one not be known yet
		if g.stopped && g.stops == int(n) {
			_ = unix.Kill(g.program, unix.SIGCONT)
		}
	case "pausing":
		g.pausing = true
	case "resumed":
		g.pausing = false
	}
}

// start starts the program, unless the lease may be over by then.
func (g *guard) start() {
	if clock() >= g.deadline-g.Grace {
		g.say("stopped")
		g.say("failed 0")
		return
	}
	pid, err := syscall.ForkExec(g.path, g.argv, &syscall.ProcAttr{
		Env: os.Environ(), Files: []uintptr{0, 1, 2}, Sys: &syscall.SysProcAttr{Setpgid: true, Pgid: g.Group},
	})
	if err != nil {
		number, _ := err.(syscall.Errno)
		g.say("failed %d", max(1, int(number)))
		return
	}
	// The program has inherited what it had to: now the guard may write to a terminal whose background it is in.
	signal.Ignore(unix.SIGTTOU)
	g.program = pid
	g.session, _ = unix.Getsid(0)
	g.told, g.pause, g.next = map[int]bool{}, time.Second, clock()+time.Second
	g.say("started %d", pid)
}

// look notes what became of the guard's children since it looked last.
func (g *guard) look() {
	for g.program != 0 {
		var status unix.WaitStatus
		pid, err := unix.Wait4(-1, &status, unix.WNOHANG|unix.WUNTRACED|unix.WCONTINUED, nil)
		switch {
		case err == unix.EINTR:
		case err != nil || pid <= 0:
			return
		case pid != g.program || g.ended: // an orphan is reaped, and that is all
		case status.Stopped():
			g.stopped, g.stops = true, g.stops+1
			g.say("paused %d %d", int(status.StopSignal()), g.stops)
		case status.Continued():
			g.stopped = false
			g.say("going-on")
		default:
			g.ended, g.stopped, g.status = true, false, status
			g.sweepUntil = clock() + g.Grace
		}
	}
}

// due does what is due, and says how long there is until the next.
func (g *guard) due() time.Duration {
	now := clock()
	if g.program == 0 || g.reported {
		return tick
	}
	if g.pausing && (!g.stopped || g.isOrphaned()) {
		// Its stop came after the program had gone on, or no shell is left to let it go on.
		_ = unix.Kill(unix.Getppid(), unix.SIGCONT)
	}
	switch {
	case g.Lost == LostWarn && !g.ended:
	case g.toolGone, now >= g.deadline:
		g.end()
	case g.Lost == LostTerm && now >= g.deadline-g.Grace:
		g.terminate()
	}
	switch {
	case g.ended || g.killing:
		pause := g.sweep(now)
		if !g.killing { // the deadline and the end of the grace must not be slept over
			pause = min(pause, max(0, min(g.deadline, g.sweepUntil)-now))
		}
		return pause
	case g.Lost == LostWarn:
		return tick
	case g.Lost == LostTerm && g.terminal == 0:
		now += g.Grace
	}
	g.lookAround()
	return g.deadline - now
}

// terminate sends SIGTERM, once; the deadline stays what it is now. A process that is
// stopped goes on, or it would not notice.
func (g *guard) terminate() {
	if g.terminal != 0 || g.Lost != LostTerm || g.program == 0 || g.ended {
		return
	}
	g.terminal = g.deadline
	g.sayStopped()
	g.signalAll(unix.SIGTERM)
	g.signalAll(unix.SIGCONT)
}

// end kills all; sweep goes on with it until nothing is left.
func (g *guard) end() {
	g.killing = true
	if !g.ended {
		g.sayStopped()
	}
}

// sayStopped says that the program does not end by itself.
func (g *guard) sayStopped() {
	if !g.said {
		g.said = true
		g.say("stopped")
	}
}

func (g *guard) say(format string, args ...any) {
	_, _ = fmt.Fprintf(g.answers, format+"\n", args...)
}
