//go:build !unix

package main

import (
	"errors"
	"os"
	"os/exec"
)

const (
	canPause = false
	ansi     = false
)

func pause(*os.Process) error  { return errors.ErrUnsupported }
func resume(*os.Process) error { return errors.ErrUnsupported }

func ownGroup(*exec.Cmd) {}
