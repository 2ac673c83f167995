//go:build unix

package run

import (
	"errors"
	"os"
	"os/signal"

	"golang.org/x/sys/unix"
	"golang.org/x/term"
)

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

// stopSelf stops this process until the shell, or the guard, lets it go on.
func stopSelf() {
	// The signal may be delivered to another thread: this one goes on for a moment,
	// and must not take that for the end of the stop.
	goesOn := make(chan os.Signal, 1)
	signal.Notify(goesOn, unix.SIGCONT)
	defer signal.Stop(goesOn)
	_ = unix.Kill(unix.Getpid(), unix.SIGSTOP)
	<-goesOn
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
