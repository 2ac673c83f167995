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

	"github.com/redis/go-redis/v9"
)

// Outcome says what an error tells about the script that it came for.
type Outcome int

const (
	// Refused: the server answered with an error that stays until somebody acts
	// (no permission, a wrong password, a wrong type, no memory), or the client
	// is closed. The script did not run.
	Refused Outcome = iota
	// NotNow: the server answered with an error that passes by itself, or the
	// call was surely not sent. The script did not run; it may be tried again.
	NotNow
	// Unknown: no answer came. The script ran, or did not, or will yet.
	Unknown
)

var (
	// ErrNotSent is what an error matches whose call was surely not sent: the
	// script has not run and never will, so that nothing needs to be undone.
	ErrNotSent = errors.New("the call was not sent")
	// ErrBacklog says that a call was not sent since too many calls before it
	// have no answer. It matches ErrNotSent.
	ErrBacklog error = &unsent{errors.New("too many calls without an answer")}

	errWithdrawn = errors.New("its caller has withdrawn it")

	errNoReply  = errors.New("the client returned neither a reply nor an error; see its hooks")
	errNoAnswer = fmt.Errorf("no answer within %v, or a hook ended its goroutine", hardBound)
)

// unsent is the error of a call that was surely not sent.
type unsent struct{ cause error }

func (e *unsent) Error() string        { return e.cause.Error() }
func (e *unsent) Unwrap() error        { return e.cause }
func (e *unsent) Is(target error) bool { return target == ErrNotSent }

// notSent is cause as the error of a call that was surely not sent.
func notSent(cause error) error {
	if cause == nil {
		cause = errNoReply
	}
	return &unsent{cause}
}

// noReply is the error of a call that may have been sent and has no outcome of
// its own. cause ended its pipeline and may be the server's answer to another
// call, so that it must not be read as an answer to this one.
func noReply(cause error) error {
	var answered redis.Error
	switch {
	case cause == nil:
		return errNoReply
	case errors.As(cause, &answered):
		return fmt.Errorf("no reply, and another call of the pipeline failed: %v", cause)
	}
	return cause
}

// TooLate says what a deadline of ours means, which ends the wait for
// a connection. Its cause is no caller's ctx, and must not be taken for one.
func TooLate(err error, began time.Time) error {
	took := time.Since(began).Round(100 * time.Millisecond)
	if errors.Is(err, ErrNotSent) {
		return notSent(fmt.Errorf("no connection after %v", took))
	}
	return fmt.Errorf("no answer after %v", took)
}

// panicked is the error of a panic in the client.
func panicked(p any) error { return fmt.Errorf("the client panicked: %v", p) }

// unsupported is the error of a server or a client that cannot be used.
type unsupported struct{ text string }

func (e *unsupported) Error() string { return e.text }

// passing is how the errors begin that pass by themselves: the server is starting,
// failing over, moving slots, running another script, unable to save for now,
// or has too many clients.
var passing = []string{
	"LOADING", "READONLY", "CLUSTERDOWN", "TRYAGAIN", "MASTERDOWN", "MOVED", "ASK", "BUSY", "UNBLOCKED",
	"NOREPLICAS", "NOSCRIPT", "MISCONF", "ERR max number of clients",
}

// serverError is the text of the server's error in err, which hooks may have
// wrapped. It is empty where err is no server's answer.
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

func unknownScript(err error) bool { return strings.HasPrefix(serverError(err), "NOSCRIPT") }

// Classify says what an error of a call tells about it.
func Classify(err error) Outcome {
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

// ClientClosed reports whether err came since the go-redis client is closed: no
// call will ever be sent through it again.
func ClientClosed(err error) bool { return errors.Is(err, redis.ErrClosed) }

// network reports whether err means that a server could not be talked to, so that
// a Cluster's topology may have changed.
func network(err error) bool {
	return err != nil && serverError(err) == "" && !ClientClosed(err) && !errors.Is(err, ErrBacklog) &&
		!errors.Is(err, context.Canceled) && !errors.Is(err, context.DeadlineExceeded)
}

// outOfService is how the errors begin by which a server says that it serves nobody
// for now.
var outOfService = []string{"LOADING", "CLUSTERDOWN", "MASTERDOWN"}

// OutOfReach reports whether err, of a call, means that its server could not be asked:
// no answer came, or the server serves nobody. A server that refuses one call is in
// reach.
func OutOfReach(err error) bool {
	if text := serverError(err); text != "" {
		return slices.ContainsFunc(outOfService, func(p string) bool { return strings.HasPrefix(text, p) })
	}
	var bad *unsupported
	return network(err) && !errors.Is(err, errWithdrawn) && !errors.As(err, &bad)
}

// Backoff is the pause before try n+1: 8 ms doubling to 256 ms, spread.
func Backoff(n int) time.Duration {
	d := 4 * time.Millisecond << min(n, 6)
	return d/2 + rand.N(d)
}
