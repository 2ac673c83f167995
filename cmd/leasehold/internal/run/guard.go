//go:build unix

package run

import (
	"bufio"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// The guard is a small process beside the program. It gets the lease's deadline
// through a pipe and stops the program's process group at it, or when the pipe
// ends: so the program does not outlast its lease where the tool was killed or
// stopped. It knows nothing of Redis.
//
// The tool's lines are "deadline NS", "group PGID", "lost NS" and "done"; all
// times are of the clock that both read. The guard's answer is "stopped" once it
// stops the program.

// Files of the guard: its standard input carries the tool's lines, its standard
// output its answers. A byte into startFile lets the program start.
const startFile = 3

// Guard is the main function of the guard process. args: grace in ns, "term" or
// "kill".
func Guard(args []string) int {
	// What stops the tool or the program must not stop the guard: it ends with the
	// pipe. It has a session of its own, so that the terminal's signals don't come.
	signal.Ignore(unix.SIGINT, unix.SIGTERM, unix.SIGHUP, unix.SIGQUIT, unix.SIGTSTP, unix.SIGTTIN, unix.SIGTTOU, unix.SIGPIPE, unix.SIGUSR1, unix.SIGUSR2)
	if len(args) != 2 {
		return CodeTool
	}
	grace, err := strconv.ParseInt(args[0], 10, 64)
	if err != nil {
		return CodeTool
	}
	g := &guard{
		grace: time.Duration(grace), kill: args[1] == "kill",
		start: os.NewFile(startFile, "start"), lines: make(chan string),
	}
	go func() {
		defer close(g.lines)
		for in := bufio.NewScanner(os.Stdin); in.Scan(); {
			g.lines <- in.Text()
		}
	}()
	return g.watch()
}

type guard struct {
	grace time.Duration
	kill  bool // there is no SIGTERM
	start *os.File
	lines chan string

	group    int           // the program's; 0 = none yet
	deadline time.Duration // by clock()
	terminal time.Duration // when SIGKILL is due after a SIGTERM; 0 = none was sent
	said     bool
}

// tick is how long the guard sleeps at most: a machine that was suspended wakes
// up behind a deadline that no timer has noticed.
const tick = 250 * time.Millisecond

// watch ends when the tool says "done", or when the program is killed.
func (g *guard) watch() int {
	timer := time.NewTimer(tick)
	for {
		select {
		case line, ok := <-g.lines:
			if !ok {
				g.end() // the tool is gone
				return 0
			}
			if line == "done" {
				return 0
			}
			g.take(line)
		case <-timer.C:
		}
		timer.Reset(min(tick, max(0, g.due())))
	}
}

// take obeys a line of the tool.
func (g *guard) take(line string) {
	what, text, _ := strings.Cut(line, " ")
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n <= 0 {
		return
	}
	switch what {
	case "deadline":
		if g.terminal == 0 { // a program that was told to stop has no more time than it was told
			g.deadline = time.Duration(n)
		}
	case "group":
		g.group = int(n)
		// The program starts by the guard's word: never before the guard knows it,
		// nor when the lease may be over.
		if clock() < g.deadline-g.grace {
			_, _ = g.start.Write([]byte{1})
		} else {
			g.say()
		}
		_ = g.start.Close()
	case "lost":
		g.deadline = min(g.deadline, time.Duration(n))
		g.terminate()
	}
}

// due does what is due, and says how long there is until the next.
func (g *guard) due() time.Duration {
	if g.group == 0 || g.deadline == 0 {
		return tick
	}
	now := clock()
	if now >= g.deadline {
		g.end()
		return tick
	}
	if now >= g.deadline-g.grace && !g.kill {
		g.terminate()
	}
	if g.terminal != 0 || g.kill {
		return g.deadline - now
	}
	return g.deadline - g.grace - now
}

// terminate sends SIGTERM, once; the deadline stays what it is now. What is
// stopped goes on, or it would not notice.
func (g *guard) terminate() {
	if g.terminal != 0 || g.kill || g.group == 0 {
		return
	}
	g.terminal = g.deadline
	g.say()
	_ = unix.Kill(-g.group, unix.SIGTERM)
	_ = unix.Kill(-g.group, unix.SIGCONT)
}

// end kills the group.
func (g *guard) end() {
	if g.group == 0 {
		return
	}
	g.say()
	_ = unix.Kill(-g.group, unix.SIGKILL)
}

func (g *guard) say() {
	if !g.said {
		g.said = true
		fmt.Println("stopped")
	}
}

// keeper is the tool's end of a guard.
type keeper struct {
	process *os.Process
	lines   *os.File
	answers *os.File
	gone    chan struct{} // closed when the guard has ended
	stopped bool          // it stopped the program; to be read when it has ended
	told    time.Duration // the deadline that it knows
}

// startGuard starts the guard; the returned file gets the byte that lets the
// program start.
func startGuard(o Options) (*keeper, *os.File, error) {
	linesOut, lines, err := os.Pipe()
	if err != nil {
		return nil, nil, err
	}
	defer linesOut.Close()
	answers, answersIn, err := os.Pipe()
	if err != nil {
		return nil, nil, err
	}
	defer answersIn.Close()
	started, start, err := os.Pipe()
	if err != nil {
		return nil, nil, err
	}
	defer start.Close() // the guard alone has it, so that its death is seen
	mode := "term"
	if o.Kill {
		mode = "kill"
	}
	self, err := self()
	if err != nil {
		return nil, nil, err
	}
	argv := []string{"leasehold", guardCommand, strconv.FormatInt(int64(o.Grace), 10), mode}
	p, err := os.StartProcess(self, argv, &os.ProcAttr{
		Dir: "/", Env: []string{}, Files: []*os.File{linesOut, answersIn, os.Stderr, start},
		Sys: &syscall.SysProcAttr{Setsid: true},
	})
	if err != nil {
		return nil, nil, err
	}
	k := &keeper{process: p, lines: lines, answers: answers, gone: make(chan struct{})}
	go func() {
		defer close(k.gone)
		for in := bufio.NewScanner(answers); in.Scan(); {
			k.stopped = k.stopped || in.Text() == "stopped"
		}
		_, _ = p.Wait()
	}()
	return k, started, nil
}

func (k *keeper) tell(what string, n int64) {
	_, _ = fmt.Fprintf(k.lines, "%s %d\n", what, n)
}

// until tells the guard a lease's deadline, where it has moved.
func (k *keeper) until(deadline time.Time) {
	at := clock() + time.Until(deadline)
	if at-k.told < time.Millisecond && k.told-at < time.Millisecond {
		return
	}
	k.told = at
	k.tell("deadline", int64(at))
}

// done ends the guard, and says whether it had stopped the program.
func (k *keeper) done() bool {
	_, _ = fmt.Fprintln(k.lines, "done")
	_ = k.lines.Close()
	select {
	case <-k.gone:
	case <-time.After(2 * time.Second): // somebody stopped it
		_ = k.process.Kill()
		<-k.gone
	}
	return k.stopped
}
