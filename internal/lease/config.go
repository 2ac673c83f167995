package lease

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/call"
	"github.com/leasehold-go/leasehold/internal/inbox"
	"github.com/leasehold-go/leasehold/internal/keys"
	"github.com/leasehold-go/leasehold/internal/life"
	"github.com/leasehold-go/leasehold/internal/protocol"
	"github.com/leasehold-go/leasehold/internal/report"
	"github.com/leasehold-go/leasehold/internal/schedule"
)

// Bounds that the Configs of the packages share.
const (
	DefaultTTL         = 30 * time.Second
	MinTTL             = 100 * time.Millisecond
	DefaultReplicaWait = time.Second

	maxTTL = 1 << 61 * time.Nanosecond // 73 years; sums of moments and terms do not overflow
)

// Config holds the settings that the Configs of the packages have in common.
type Config struct {
	Package     string // for errors
	Family      keys.Family
	Protocol    protocol.Protocol
	TTL         time.Duration // 0: DefaultTTL
	MaxHold     time.Duration // 0: no bound
	MaxWaiters  int           // 0: no bound
	MaxWait     time.Duration // 0: no bound but ctx
	Replicas    int           // how many confirm each grant; 0: none
	ReplicaWait time.Duration // how long they may take; 0: DefaultReplicaWait, or less if the bound is lower
	Label       string        // of the handle, in listings; see keys.LabelSuffix
	Observer    leasehold.Observer
	Logger      *slog.Logger // nil: none
	OwnEvents   bool         // the package itself tells the Observer how its leases are used
	Shares      *Manager     // whose connection to the servers the handle shares; nil: it has its own
	FailsFast   bool         // an attempt without an answer ends once its server is known to be away
	Keeps       bool         // leases may be kept when nobody uses them: see Keeper
	Quorum      Quorum       // the servers that decide together, instead of rdb; nil: rdb decides

	ofFamily time.Duration // the TTL before MaxHold shortens it
}

// TermWithin is life.TermWithin, and at least MinTTL.
func TermWithin(ttl, left time.Duration) time.Duration {
	return max(MinTTL, life.TermWithin(ttl, left))
}

// New checks cfg and makes a Manager. extra holds the errors that the package found in its own
// fields. New sends nothing.
func New(rdb redis.UniversalClient, cfg Config, extra ...error) (*Manager, error) {
	errs := append(cfg.Family.Check(), extra...)
	var client Servers = cfg.Quorum
	var single *call.Client
	if cfg.Quorum == nil {
		var err error
		if cfg.Shares != nil { // both learn at the same time that a server does not answer
			single = cfg.Shares.single.Another()
		} else if single, err = call.NewClient(rdb); err != nil {
			errs = append(errs, keys.Invalid("%v", err))
		}
		client = single
	}
	cfg.TTL = min(cmp.Or(cfg.TTL, DefaultTTL), maxTTL)
	label, err := keys.LabelSuffix(cfg.Label)
	errs = append(errs,
		keys.Unless(cfg.TTL >= MinTTL, "TTL", "is %v; want at least %v, or 0 for %v", cfg.TTL, MinTTL, DefaultTTL),
		keys.Unless(cfg.MaxHold >= 0, "MaxHold", "is %v; want 0 (no bound) or more", cfg.MaxHold),
		keys.Unless(cfg.MaxWaiters >= 0, "MaxWaiters", "is %d; want 0 (no bound) or more", cfg.MaxWaiters),
		keys.Unless(cfg.MaxWait >= 0, "MaxWait", "is %v; want 0 (as long as ctx lives) or more", cfg.MaxWait), err)
	var confirm call.Confirm
	if cfg.Replicas != 0 || cfg.ReplicaWait != 0 {
		var bad []error
		confirm, bad = cfg.confirm(single)
		errs = append(errs, bad...)
	}
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("leasehold: %s: bad configuration: %w", cfg.Package, err)
	}
	cfg.ofFamily = cfg.TTL
	if cfg.MaxHold > 0 {
		// A crashed holder cannot give back at MaxHold, so its lease is over by then, too.
		cfg.TTL = TermWithin(cfg.TTL, cfg.MaxHold)
	}
	id := make([]byte, 16)
	_, _ = rand.Read(id) // never fails
	m := &Manager{
		cfg:       cfg,
		client:    client,
		single:    single,
		confirm:   confirm,
		handle:    base64.RawURLEncoding.EncodeToString(id),
		born:      time.Now().Add(-time.Hour), // so that no moment of its life is 0
		closing:   make(chan struct{}),
		ended:     make(chan struct{}),
		attempts:  map[uint64]*attempt{},
		groups:    map[string]*group{},
		resources: map[string]protocol.Resource{},
	}
	m.idle = sync.NewCond(&m.mu)
	m.watch.m = m
	m.events = report.New(cfg.Package, cfg.Family.Name, cfg.Observer, cfg.Logger)
	m.loop = schedule.New(client)
	if cfg.Keeps {
		label = keys.Keeps + label
	}
	if single != nil {
		single.CountQuestions(m.Go)
	}
	switch {
	case cfg.Quorum != nil:
		m.handle += label
		m.inbox = cfg.Quorum.Open(m.handle, cfg.ofFamily, m.message, m.subscribed)
	case single.IsCluster():
		m.handle += keys.InSlot + label
		channelOf := func(key string) string { return keys.InboxAt(key, m.handle) }
		m.inbox = inbox.NewSharded(single, channelOf, m.message, m.subscribedFor)
	default:
		m.handle += label
		m.inbox = inbox.New(
			func(ctx context.Context) call.PubSub { return single.Subscribe(ctx, cfg.Family.Inbox(m.handle)) },
			m.message, m.subscribed)
	}
	return m, nil
}

// Replicas: if a Config asks for them, a grant counts only after that many of the primary's
// replicas have confirmed it, and only a confirmed renewal moves the deadline. The enter and
// the renewals of such a handle ask for the confirmation themselves (call.Confirm). A grant
// that arrived in another way, by a message or in the reply to another call, has no
// confirmation: an own renewal has it confirmed before Acquire returns.

// NeedsReplicas reports whether replicas have to confirm each grant.
func (m *Manager) NeedsReplicas() bool { return m.confirm != (call.Confirm{}) }

// confirm checks Replicas and ReplicaWait and returns the Confirm for the handle's calls, which
// is zero without replicas. client is nil if the Config has no valid client.
func (c Config) confirm(client *call.Client) (none call.Confirm, errs []error) {
	if c.Replicas < 0 {
		errs = append(errs, keys.Bad("Replicas", "is %d; want 0 (none) or more", c.Replicas))
	}
	term := max(MinTTL, c.TTL)
	if c.MaxHold > 0 {
		term = TermWithin(term, c.MaxHold)
	}
	longest, of := term/4, "a quarter of the TTL"
	if c.MaxHold > 0 {
		of += ", or of MaxHold"
	}
	// How long the client waits for an answer matters only if there are replicas.
	if client != nil && c.Replicas > 0 && client.LongestWait() < longest {
		longest, of = client.LongestWait(), "three quarters of the client's ReadTimeout"
	}
	if c.ReplicaWait != 0 && (c.ReplicaWait < time.Millisecond || c.ReplicaWait > longest) {
		errs = append(errs, keys.Bad("ReplicaWait", "is %v; want 1ms to %v (%s), or 0 for %v or less",
			c.ReplicaWait, longest, of, DefaultReplicaWait))
	}
	if len(errs) > 0 || c.Replicas == 0 {
		return none, errs
	}
	wait := c.ReplicaWait
	if wait == 0 {
		wait = max(time.Millisecond, min(DefaultReplicaWait, longest))
	}
	return call.Confirm{Replicas: c.Replicas, Wait: wait, TTL: term}, nil
}

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
	Trouble(key string) error
	// Settle ends what only the handle runs, and waits until nothing is left of its calls. It is called once.
	Settle()
}

// A Quorum is several servers that decide together. Its protocol prepares joint calls, which
// Do and Start begin.
type Quorum interface {
	Servers
	// Open tells the Quorum the id of its handle, the longest TTL of a lease of the family, and where messages and new
	// subscriptions go. It returns the inbox.
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
