package call

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/redis/go-redis/v9"
)

// An ErrorClass is what an error says about the script that was called.
type ErrorClass int

const (
	// Refused means that the server answered with an error that stays until somebody acts (a
	// wrong type, no memory), or that the client is closed. The script did not run.
	Refused ErrorClass = iota
	// NotNow means that the server answered with an error that passes by itself, or that the
	// call was surely not sent. The script did not run, and the call may be tried again.
	NotNow
	// Unknown means that no answer came. The script ran, did not run, or will still run.
	Unknown
)

var (
	// ErrNotSent is matched by the error of a call that was surely not sent. The script has
	// not run and never will, so nothing needs to be undone.
	ErrNotSent = errors.New("the call was not sent")

	errWithdrawn = errors.New("its caller has withdrawn it")

	errNoReply  = errors.New("the client returned neither a reply nor an error; see its hooks")
	errNoAnswer = fmt.Errorf("no answer within %v, or a hook ended its goroutine", hardBound)
)

// unsent is the error of a call that was surely not sent.
type unsent struct{ cause error }

func (e *unsent) Error() string        { return e.cause.Error() }
func (e *unsent) Unwrap() error        { return e.cause }
func (e *unsent) Is(target error) bool { return target == ErrNotSent }

// NotSent returns an error for a call that was surely not sent because of cause.
func NotSent(cause error) error {
	if cause == nil {
		cause = errNoReply
	}
	return &unsent{cause}
}

// noReply returns the error of a call that may have been sent and has no outcome of its own. cause is the error of its
// pipeline. It may be the server's answer to another call, so it must not be read as an answer to this one.
func noReply(cause error) error {
	var answered redis.Error
	switch {
	case cause == nil:
		return errNoReply
	case errors.As(cause, &answered):
		return fmt.Errorf("another command of its pipeline failed: %v", cause)
	}
	return cause
}

// TooLate returns the error for a deadline of this package that has passed. The deadline is
// not that of the caller's ctx, and the error must not look as if it were.
func TooLate(err error, began time.Time) error {
	took := time.Since(began).Round(100 * time.Millisecond)
	if errors.Is(err, ErrNotSent) {
		return NotSent(fmt.Errorf("no connection after %v", took))
	}
	return fmt.Errorf("no answer after %v", took)
}

// panicked returns the error for a panic in the client.
func panicked(p any) error { return fmt.Errorf("the client panicked: %v", p) }

// Harmless returns err, or, if one of its methods panics, an error that says so: a hook may return a nil pointer.
func Harmless(err error) (safe error) {
	defer func() {
		if p := recover(); p != nil {
			safe = panicked(p)
		}
	}()
	if err != nil {
		_, _, _ = err.Error(), errors.Is(err, ErrNotSent), broken(err)
	}
	return err
}

// tame makes the errors of commands harmless after their round trip, and returns that of the round trip.
func tame(trip error, cmds ...redis.Cmder) error {
	for _, cmd := range cmds {
		if err := cmd.Err(); err != nil {
			cmd.SetErr(Harmless(err))
		}
	}
	return Harmless(trip)
}

// unsupported is the error for a server or a client that cannot be used.
type unsupported struct{ text string }

func (e *unsupported) Error() string { return e.text }

// passing lists the beginnings of server errors that pass by themselves: the server is starting, failing over, moving
// slots, running another script, unable to save for now, or has too many clients. A wrong password and missing rights
// may pass, too: while credentials are rotated, the server and its clients have different ones for a moment. If they
// stay, a caller hears of them when the bound of its call is over.
var passing = []string{
	"LOADING", "READONLY", "CLUSTERDOWN", "TRYAGAIN", "MASTERDOWN", "MOVED", "ASK", "BUSY", "UNBLOCKED",
	"NOREPLICAS", "NOSCRIPT", "MISCONF", "ERR max number of clients", "WRONGPASS", "NOAUTH", "NOPERM",
	"ERR Protocol error: unauthenticated", // what a script with more than ten arguments gets instead of NOAUTH
}

// serverError returns the text of the server's error in err, which hooks may have wrapped. It
// is empty if err is not a server's answer.
func serverError(err error) string {
	if err == nil {
		return ""
	}
	var answered redis.Error // costs an allocation
	if !errors.As(err, &answered) {
		return ""
	}
	return answered.Error()
}

// Scattered reports whether err says that a slot moves from one node of a Cluster to another, and that the one that was
// asked has only some of the keys that the call names. It counts a key that does not exist as one that it has not.
func Scattered(err error) bool { return strings.HasPrefix(serverError(err), "TRYAGAIN") }

func unknownScript(err error) bool { return strings.HasPrefix(serverError(err), "NOSCRIPT") }

// Classify returns what the error of a call says about its script.
func Classify(err error) ErrorClass {
	if text := serverError(err); text != "" {
		for _, p := range passing {
			if strings.HasPrefix(text, p) {
				return NotNow
			}
		}
		return Refused
	}
	var op *net.OpError
	var bad *unsupported
	switch {
	case ClientClosed(err), errors.As(err, &bad):
		return Refused
	case errors.Is(err, ErrNotSent), errors.Is(err, redis.ErrPoolTimeout), errors.Is(err, redis.ErrPoolExhausted),
		errors.As(err, &op) && op.Op == "dial":
		return NotNow
	}
	return Unknown
}

// ClientClosed reports whether err says that the go-redis client is closed. Such a client never sends a call again.
func ClientClosed(err error) bool { return errors.Is(err, redis.ErrClosed) }

// network reports whether err means that a server could not be reached, so that a Cluster's topology may have changed.
func network(err error) bool {
	return err != nil && serverError(err) == "" && !ClientClosed(err) && !errors.Is(err, errWithdrawn) &&
		!errors.Is(err, context.Canceled) && !errors.Is(err, context.DeadlineExceeded)
}

// outOfService lists the beginnings of the errors of a server that serves nobody for now.
var outOfService = []string{"LOADING", "CLUSTERDOWN", "MASTERDOWN"}

// OutOfReach reports whether err means that the server of a call could not be asked: no answer
// came, or the server serves nobody for now. A server that refuses one call is within reach.
func OutOfReach(err error) bool {
	if text := serverError(err); text != "" {
		return slices.ContainsFunc(outOfService, func(p string) bool { return strings.HasPrefix(text, p) })
	}
	var bad *unsupported
	return network(err) && !errors.As(err, &bad)
}

// Revoked returns the reason, as it may be shown, if err is the answer of a script that an attempt was revoked. The
// script did what it could for others, and nothing for the attempt.
func Revoked(err error) (reason string, revoked bool) {
	reason, revoked = strings.CutPrefix(serverError(err), "REVOKED ")
	return CleanReason(reason), revoked
}

// MaxReason is the greatest length of the reason of a revocation, in bytes.
const MaxReason = 200

// CleanReason returns the part of a reason from Redis that may be shown.
func CleanReason(text string) string {
	text = strings.Map(func(r rune) rune {
		if r == utf8.RuneError || !unicode.IsPrint(r) {
			return '?'
		}
		return r
	}, text)
	if len(text) > MaxReason {
		text = strings.ToValidUTF8(text[:MaxReason], "")
	}
	return text
}

// lasting lists the beginnings of server errors that nothing but a person ends: missing rights,
// a foreign value in the place of a key, a fence without a next token, an old server.
var lasting = []string{"NOPERM", "NOAUTH", "WRONGPASS", "WRONGTYPE", "FENCESPENT", "ERR unknown command"}

// Lasting reports whether the cause of err stays until a person acts, so that a new attempt soon is useless.
func Lasting(err error) bool {
	text := serverError(err)
	var bad *unsupported
	return slices.ContainsFunc(lasting, func(p string) bool { return strings.HasPrefix(text, p) }) ||
		ClientClosed(err) || errors.As(err, &bad)
}

// Backoff returns the pause before try n+1: 8 ms, doubling to 256 ms, spread at random.
func Backoff(n int) time.Duration {
	d := 4 * time.Millisecond << min(n, 6)
	return d/2 + rand.N(d)
}

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
