//go:build unix

package main

import (
	"os/exec"
	"syscall"
)

// ownGroup puts a child into a process group of its own: a Ctrl-C then reaches
// the parent alone, which ends the others in order.
func ownGroup(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }
