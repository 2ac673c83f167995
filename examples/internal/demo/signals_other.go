//go:build !unix

package demo

import (
	"errors"
	"os"
	"os/exec"
)

var errNoSignals = errors.New("this system cannot stop a process so that it does not notice")

func pause(*os.Process) error  { return errNoSignals }
func resume(*os.Process) error { return errNoSignals }

func ownGroup(*exec.Cmd) {}
