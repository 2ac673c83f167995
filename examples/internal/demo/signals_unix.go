//go:build unix

package demo

import (
	"os/exec"
	"syscall"
)

const sigStop, sigCont = syscall.SIGSTOP, syscall.SIGCONT

// ownGroup puts a child into a process group of its own. A Ctrl-C then reaches
// the parent alone, which ends the others; and should the parent be killed, the
// kernel wakes the children that are stopped (POSIX: in a group that its leader's
// parent leaves orphaned), so that they notice, too.
func ownGroup(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }
