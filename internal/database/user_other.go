//go:build !unix

package database

import (
	"errors"
	"os/exec"
)

func notAsRoot(*exec.Cmd, string) error {
	return errors.New("it is started on Unix systems only")
}
