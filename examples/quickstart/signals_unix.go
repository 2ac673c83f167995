//go:build unix

package main

import (
	"os"
	"os/exec"
	"syscall"
)

// canPause: whether a process can be stopped so that it does not notice.
const canPause = true

// ansi: whether terminals here understand escape sequences without being asked.
const ansi = true

func pause(p *os.Process) error  { return p.Signal(syscall.SIGSTOP) }
func resume(p *os.Process) error { return p.Signal(syscall.SIGCONT) }

// ownGroup puts a child into a process group of its own. A Ctrl-C then reaches
// the parent alone, which ends the others; and should the parent be killed, the
// kernel wakes the children that are stopped (POSIX: in a group that its leader's
// parent leaves orphaned), so that they notice, too.
func ownGroup(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }
