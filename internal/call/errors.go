package call

import (
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// ErrBacklog says that a call was not sent: too many before it are unanswered.
var ErrBacklog = errors.New("too many calls without an answer")

// Outcome says what an error tells about the script that it came for.
type Outcome int

const (
	// Refused: the server answered with an error that will not pass by itself
	// (a wrong type, no permission, out of memory).
	Refused Outcome = iota
	// NotNow: the server answered that it cannot now, or the call never left:
	// it did not run, and may be tried again.
	NotNow
	// Unknown: no answer came. The script ran, or did not, or will yet.
	Unknown
)

// passing are the errors of a server that is on its way to something else:
// starting, failing over, moving slots, running another script.
var passing = []string{
	"LOADING", "READONLY", "CLUSTERDOWN", "TRYAGAIN", "MASTERDOWN", "MOVED", "ASK", "BUSY", "UNBLOCKED",
	"NOREPLICAS", "NOSCRIPT", "ERR max number of clients reached",
}

// Classify says what an error of a call tells about it.
func Classify(err error) Outcome {
	var answered redis.Error
	if errors.As(err, &answered) {
		text := answered.Error()
		for _, p := range passing {
			if strings.HasPrefix(text, p) {
				return NotNow
			}
		}
		return Refused
	}
	var op *net.OpError
	if errors.Is(err, ErrBacklog) || errors.Is(err, redis.ErrPoolTimeout) || errors.Is(err, redis.ErrPoolExhausted) ||
		(errors.As(err, &op) && op.Op == "dial") {
		return NotNow
	}
	if errors.Is(err, redis.ErrClosed) {
		return Refused
	}
	return Unknown
}

// network reports whether err means that a node could not be talked to, so that
// a Cluster's topology may have changed.
func network(err error) bool {
	var answered redis.Error
	return err != nil && !errors.As(err, &answered) &&
		!errors.Is(err, context.Canceled) && !errors.Is(err, context.DeadlineExceeded)
}

// Backoff is the pause before try n+1: 8 ms doubling to 256 ms, spread.
func Backoff(n int) time.Duration {
	d := 4 * time.Millisecond << min(n, 6)
	return d/2 + rand.N(d)
}
