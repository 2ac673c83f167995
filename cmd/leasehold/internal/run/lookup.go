package run

import (
	"errors"
	"fmt"
	"io/fs"
	"os/exec"
)

// lookUp finds the program before anything is taken: a misspelt name must not cost the fleet a turn.
func lookUp(name string) (string, error) {
	path, err := exec.LookPath(name)
	switch {
	case err == nil:
		return path, nil
	case errors.Is(err, exec.ErrDot):
		return path, nil // asked for by the user's own PATH
	case errors.Is(err, exec.ErrNotFound), errors.Is(err, fs.ErrNotExist):
		return "", failed(CodeNotFound, fmt.Errorf("%s: not found", name))
	default:
		return "", failed(CodeCannotRun, fmt.Errorf("%s: can't be run: %w", name, cause(err)))
	}
}

// cause is what an error of the system says, without the call and the path.
func cause(err error) error {
	for {
		next := errors.Unwrap(err)
		if next == nil {
			return err
		}
		err = next
	}
}
