//go:build unix

package run

import (
	"os"
	"os/signal"

	"golang.org/x/sys/unix"
	"golang.org/x/term"
)

// terminal is the terminal that the program gets, and that the tool takes back.
type terminal struct {
	tty   *os.File
	state *term.State // as it was found
}

// openTerminal is the controlling terminal, where the tool is in its foreground
// and the program is to talk to it: with standard input and output there. Else
// nil: the program runs without it.
func openTerminal() *terminal {
	if !term.IsTerminal(int(os.Stdin.Fd())) || !term.IsTerminal(int(os.Stdout.Fd())) {
		return nil
	}
	tty, err := os.OpenFile("/dev/tty", os.O_RDWR, 0)
	if err != nil {
		return nil
	}
	t := &terminal{tty: tty}
	if !t.ours() {
		_ = tty.Close()
		return nil
	}
	t.state, _ = term.GetState(t.fd())
	return t
}

func (t *terminal) fd() int { return int(t.tty.Fd()) }

// ours says that the tool's process group is in the foreground.
func (t *terminal) ours() bool {
	group, err := unix.IoctlGetInt(t.fd(), unix.TIOCGPGRP)
	return err == nil && group == unix.Getpgrp()
}

// give puts a process group into the foreground. From the background that is
// answered with SIGTTOU, which is ignored meanwhile; a program must not inherit
// that, so that it is not ignored all the time.
func (t *terminal) give(group int) {
	signal.Ignore(unix.SIGTTOU)
	defer signal.Reset(unix.SIGTTOU)
	_ = unix.IoctlSetPointerInt(t.fd(), unix.TIOCSPGRP, group)
}

// pause stops the tool as the program was stopped, until the shell lets it go on.
func (t *terminal) pause(group int) {
	t.give(unix.Getpgrp())
	// The signal may be delivered to another thread: this one goes on for a moment,
	// and must not let the program go on in it.
	goesOn := make(chan os.Signal, 1)
	signal.Notify(goesOn, unix.SIGCONT)
	defer signal.Stop(goesOn)
	_ = unix.Kill(unix.Getpid(), unix.SIGSTOP)
	<-goesOn
	if t.ours() {
		t.give(group)
	}
	_ = unix.Kill(-group, unix.SIGCONT)
}

// takeBack puts the terminal back as it was: a program that was killed may have
// left it raw.
func (t *terminal) takeBack(killed bool) {
	if t == nil {
		return
	}
	t.give(unix.Getpgrp())
	if killed && t.state != nil {
		_ = term.Restore(t.fd(), t.state)
	}
	_ = t.tty.Close()
}
