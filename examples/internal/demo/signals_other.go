//go:build !unix

package demo

import (
	"os/exec"
	"syscall"
)

// This system cannot stop a process so that it does not notice: to send these is an error.
const sigStop, sigCont = syscall.Signal(-1), syscall.Signal(-1)

func ownGroup(*exec.Cmd) {}
