//go:build !unix

package demo

import (
	"errors"
	"os"
	"os/exec"
)

// CanPause: whether a process can be stopped so that it does not notice.
const CanPause = false

// Pause is not supported here.
func pause(*os.Process) error { return errors.ErrUnsupported }

// resume is not supported here.
func resume(*os.Process) error { return errors.ErrUnsupported }

// OwnGroup does nothing where there are no process groups.
func OwnGroup(*exec.Cmd) {}
