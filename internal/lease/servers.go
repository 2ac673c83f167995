package lease

import (
	"context"
	"sync"
	"time"

	"github.com/leasehold-go/leasehold/internal/call"
)

// Servers carries the calls of a handle. A call.Client carries them to one server or Cluster, a
// Quorum to several servers that decide together.
type Servers interface {
	Do(ctx context.Context, c *call.Call) ([]int64, error)
	Start(ctx context.Context, active *sync.WaitGroup, calls ...*call.Call)
	Brief() context.Context
	Now(key string) (us int64, wait *call.Question)
	Learn(key string, s call.Sample)
	Node(key string) string
	Reachable(ctx context.Context, key string) error
	Away(key string) bool
	// Settle ends what only the handle runs, and waits until nothing is left of its calls.
	Settle()
}

// A Quorum is several servers that decide together. Its protocol prepares joint calls, which
// Do and Start begin.
type Quorum interface {
	Servers
	// Open tells the Quorum the id and the TTL of its handle, and where messages and new subscriptions go. It returns
	// the inbox.
	Open(handle string, ttl time.Duration, message func(string), subscribed func()) Messages
}

// Messages is the inbox on which a handle learns which leases other processes grant to it. It
// calls Manager.message for each message. On each new subscription it calls subscribed or
// subscribedFor, because messages may have been missed before.
type Messages interface {
	// Watch starts to listen for messages about key (a Resource.FirstKey) and does not wait
	// for the subscription. It returns the time since which messages are heard. A zero time
	// means not yet; the manager is then told once they are.
	Watch(key string) (since time.Time)
	// Unwatch ends one Watch of key.
	Unwatch(key string)
	Close()
}
