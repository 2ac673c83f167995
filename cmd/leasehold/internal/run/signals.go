//go:build unix

package run

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
	"golang.org/x/term"
)

// ignoredAtStart are the signals that this process ignores because its parent did, as nohup
// does. They stay ignored, for the tool and for the program: asking for one would end that.
var ignoredAtStart = sync.OnceValue(func() map[syscall.Signal]bool {
	ignored := initiallyIgnored()
	if ignored[unix.SIGINT] {
		// A script ignores both in its background jobs. The runtime keeps the one, and has forgotten the other.
		ignored[unix.SIGQUIT] = true
		signal.Ignore(unix.SIGQUIT)
	}
	return ignored
})

// catch asks for the signals that are not to stay ignored.
func catch(to chan<- os.Signal, signals ...syscall.Signal) {
	ignored := ignoredAtStart()
	for _, sig := range signals {
		if !ignored[sig] {
			signal.Notify(to, sig)
		}
	}
}

// neither is where signals go that are neither to act nor to be ignored: a program that is
// started later inherits what is ignored, and not what is caught.
var neither = make(chan os.Signal)

// ending are the signals that end a tool that waits, passed those that are given on to the program.
var (
	ending = []syscall.Signal{unix.SIGINT, unix.SIGTERM, unix.SIGHUP, unix.SIGQUIT}
	passed = append(slices.Clone(ending), unix.SIGUSR1, unix.SIGUSR2, unix.SIGALRM, unix.SIGWINCH, unix.SIGTSTP)
)

// The tool and the program share a process group where there is a terminal. A signal to the
// group has reached the program, and one to the tool alone has not: the listener is a
// process of that group which says what it heard. It ends with its standard input.

// Listener is the main function of the listener process.
func Listener() int {
	signal.Ignore(unix.SIGTTIN, unix.SIGTTOU, unix.SIGPIPE)
	heard := make(chan os.Signal, 64)
	catch(heard, passed...)
	fmt.Println("ready")
	go func() {
		for sig := range heard {
			fmt.Println(int(sig.(syscall.Signal)))
		}
	}()
	_, _ = os.Stdin.Read(make([]byte, 1))
	return 0
}

// hearing is how long the listener has to hear a signal that went to the whole group. The
// two processes hear it at different times.
const hearing = 50 * time.Millisecond

// listener is the tool's end of a listener process.
type listener struct {
	process *os.Process
	stop    *os.File

	mu    sync.Mutex
	heard map[syscall.Signal]time.Time
	news  chan struct{} // closed and replaced whenever it heard something
	gone  bool
}

func startListener() (*listener, error) {
	in, stop, words, out, err := pipes()
	if err != nil {
		return nil, err
	}
	p, err := startSelf([]string{listenerCommand}, &os.ProcAttr{Dir: "/", Env: []string{}, Files: []*os.File{in, out}})
	_, _ = in.Close(), out.Close() // a signal may end the listener before it is ready: then nothing else has its end
	if err != nil {
		return nil, err
	}
	l := &listener{process: p, stop: stop, heard: map[syscall.Signal]time.Time{}, news: make(chan struct{})}
	lines := bufio.NewScanner(words)
	lines.Scan()
	go func() {
		defer words.Close()
		for lines.Scan() {
			n, _ := strconv.Atoi(lines.Text())
			l.note(func() { l.heard[syscall.Signal(n)] = time.Now() })
		}
		l.note(func() { l.gone = true })
	}()
	return l, nil
}

func (l *listener) note(what func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	what()
	close(l.news)
	l.news = make(chan struct{})
}

// toToolAlone reports whether a signal that came at that time did not go to the whole group.
// It takes up to the time of hearing to say so. A nil listener knows that none did.
func (l *listener) toToolAlone(sig syscall.Signal, at time.Time) bool {
	if l == nil {
		return true
	}
	asked := time.Now()
	over := time.NewTimer(hearing)
	defer over.Stop()
	for {
		l.mu.Lock()
		near, gone, news := at.Sub(l.heard[sig]) < hearing, l.gone, l.news
		l.mu.Unlock()
		if near {
			return false
		}
		if gone { // twice is better than never
			return true
		}
		select {
		case <-news:
		case <-over.C:
			if time.Since(asked) < 2*hearing {
				return true
			}
			// This process stood still meanwhile, as after Ctrl-Z, and has yet to read what the listener said.
			asked = time.Now()
			over.Reset(hearing)
		}
	}
}

// took notes that a signal has stopped the program. A listener that has had no time yet to say that it heard the
// same Ctrl-Z must not have it passed on to a program that goes on meanwhile.
func (l *listener) took(sig syscall.Signal) {
	if l != nil {
		l.note(func() { l.heard[sig] = time.Now() })
	}
}

// stoodStill takes the time since from, while this process was stopped, out of the account: a
// signal that the listener heard before may have come to this process's notice only now.
func (l *listener) stoodStill(from time.Time) {
	if l == nil {
		return
	}
	l.note(func() {
		for sig, at := range l.heard {
			if from.Sub(at) < hearing {
				l.heard[sig] = time.Now()
			}
		}
	})
}

func (l *listener) end() {
	if l == nil {
		return
	}
	_ = l.stop.Close()
	_, _ = l.process.Wait()
}

// terminal is the controlling terminal. The program shares the tool's process group, so that
// the shell moves both between foreground and background, and the kernel signals both.
type terminal struct {
	tty   *os.File
	group int         // the tool's
	state *term.State // as it was found; nil where it was another's then
}

// openTerminal returns nil where there is none, as under cron.
func openTerminal() *terminal {
	tty, err := os.OpenFile("/dev/tty", os.O_RDWR, 0)
	if err != nil {
		return nil
	}
	t := &terminal{tty: tty, group: unix.Getpgrp()}
	if t.foreground() == t.group {
		t.state, _ = term.GetState(t.fd())
	}
	return t
}

func (t *terminal) fd() int { return int(t.tty.Fd()) }

// foreground is the process group that has the terminal; -1 where that is not known.
func (t *terminal) foreground() int {
	group, err := unix.IoctlGetInt(t.fd(), unix.TIOCGPGRP)
	if err != nil {
		return -1
	}
	return group
}

// give puts a process group into the foreground. The tool ignores SIGTTOU by then, which
// would be the answer to one in the background.
func (t *terminal) give(group int) {
	_ = unix.IoctlSetPointerInt(t.fd(), unix.TIOCSPGRP, group)
}

// restore puts the terminal back as it was. It takes the foreground only from a group of the
// program's that has ended, never from a living one: that may be the shell. A program that
// was killed may have left the terminal raw.
func (t *terminal) restore(killed bool) {
	if t == nil {
		return
	}
	defer t.tty.Close()
	group := t.foreground()
	if group > 0 && group != t.group && errors.Is(unix.Kill(-group, 0), unix.ESRCH) {
		t.give(t.group)
		group = t.group
	}
	if killed && t.state != nil && group == t.group {
		_ = term.Restore(t.fd(), t.state)
	}
}
