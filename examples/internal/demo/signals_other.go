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
func Pause(*os.Process) error { return errors.ErrUnsupported }

// Resume is not supported here.
func Resume(*os.Process) error { return errors.ErrUnsupported }

// OwnGroup does nothing where there are no process groups.
func OwnGroup(*exec.Cmd) {}
