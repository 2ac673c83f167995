package call

import (
	"slices"
	"strings"
)

// opError names the operation, the family and the key, and holds the errors: a sentinel first, then its cause.
type opError struct {
	pkg, op, label string
	errs           []error
}

// Fail makes the error of an operation of a public package on the resource called label. The
// error matches each of errs; nil ones are left out.
func Fail(pkg, op, label string, errs ...error) error {
	errs = slices.DeleteFunc(errs, func(err error) bool { return err == nil })
	return &opError{pkg: pkg, op: op, label: label, errs: errs}
}

func (e *opError) Error() string {
	parts := []string{"leasehold", e.pkg, strings.TrimSpace(e.op + " " + e.label)}
	for _, err := range e.errs {
		parts = append(parts, err.Error())
	}
	return strings.Join(parts, ": ")
}

func (e *opError) Unwrap() []error { return e.errs }
