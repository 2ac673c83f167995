package quorum

import (
	"context"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold/internal/call"
	"github.com/leasehold-go/leasehold/internal/inbox"
	"github.com/leasehold-go/leasehold/internal/keys"
)

type server struct {
	f      *Family
	i      int
	rdb    redis.UniversalClient
	client *call.Client
	inbox  *inbox.Inbox

	mu         sync.Mutex // guards the fields below
	run        string     // its run id; "": not known yet
	same       error      // it is the same server as another one
	stragglers []straggler
	sweeping   bool // a goroutine repeats the stragglers
}

// A straggler is a leave that a server has not answered. Nobody waits for it.
type straggler struct {
	key     string
	prepare func() *call.Call
	until   time.Time // when nothing can be left to give back
}

var runIDField = regexp.MustCompile(`(?m)^run_id:(\S+)`)

// runID returns the run id that the process has told, or "".
func (s *server) runID() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.run
}

// meet notes the run id that a reply told. All of the embedded servers for tests are called
// "embedded".
func (s *server) meet(run string) {
	if run == "" {
		return
	}
	s.mu.Lock()
	s.run = run // before the look at the others: of two that meet at the same time, one sees the other
	s.mu.Unlock()
	var same error
	for _, other := range s.f.servers {
		if other != s && run != "embedded" && other.runID() == run {
			same = keys.Bad(field(s.i), "is the same server as %s (run id %.8s…); want different servers", field(other.i), run)
		}
	}
	s.mu.Lock()
	s.same = same // only now: a vote that comes meanwhile does not count
	s.mu.Unlock()
}

// twice returns an error if the server is the same as another one, so that its vote does not count.
func (s *server) twice() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.same
}

// away reports whether the server is known not to answer. Then it makes sure that probes are sent.
func (s *server) away(key string) error {
	if !s.client.Away(key) {
		return nil
	}
	return s.client.Reachable(call.EndedCtx, key) // it does not wait
}

func (s *server) start(ctx context.Context, c *call.Call) { s.client.Start(ctx, &s.f.active, c) }

const (
	// sweepEvery is the interval at which leaves that a server has not answered are repeated: as
	// often as a server that is away gets a probe.
	sweepEvery = 250 * time.Millisecond
	// maxStragglers bounds the leaves that are kept for a server. Votes that are not given back end
	// with their term.
	maxStragglers = 100_000
)

// leaveLater repeats a leave until the server has answered it. All leaves that a server has not
// answered wait in one line, so that one that hangs costs one goroutine.
func (s *server) leaveLater(l straggler) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.f.life.Err() != nil || len(s.stragglers) >= maxStragglers {
		return
	}
	s.stragglers = append(s.stragglers, l)
	if !s.sweeping {
		s.sweeping = true
		s.f.active.Go(s.sweep)
	}
}

func (s *server) sweep() {
	tick := time.NewTicker(sweepEvery)
	defer tick.Stop()
	for {
		select {
		case <-s.f.life.Done():
			s.mu.Lock()
			s.stragglers, s.sweeping = nil, false
			s.mu.Unlock()
			return
		case <-tick.C:
		}
		s.mu.Lock()
		now := time.Now()
		kept := slices.DeleteFunc(s.stragglers, func(l straggler) bool { return !l.until.After(now) })
		if s.stragglers = kept; len(kept) == 0 {
			s.sweeping = false
			s.mu.Unlock()
			return
		}
		all, key := kept, kept[0].key
		if s.client.Away(key) {
			all = nil
		} else {
			s.stragglers = nil
		}
		s.mu.Unlock()
		_ = s.away(key) // a probe
		for _, l := range all {
			s.giveBack(l)
		}
	}
}

// giveBack sends a leave, and once more later if it has no answer.
func (s *server) giveBack(l straggler) {
	c := l.prepare()
	c.Done = func(_ []int64, err error) {
		if err != nil && !isRevoked(err) {
			s.leaveLater(l)
		}
	}
	s.start(context.Background(), c)
}

func isRevoked(err error) bool {
	_, revoked := call.Revoked(err)
	return revoked
}

// newInbox makes the subscription of a handle on one server.
func (s *server) newInbox() *inbox.Inbox {
	subscribe := func(ctx context.Context) call.PubSub { return s.client.Subscribe(ctx, s.f.keys.Inbox(s.f.handle)) }
	return inbox.New(subscribe, s.message, s.subscribed)
}

// Watch opens the subscriptions. Messages of a server are heard from the time on that its
// subscription exists, and then its votes are asked for; the result is zero, so that the manager
// asks once more, unless all exist.
func (f *Family) Watch(key string) (since time.Time) {
	all := true
	for _, s := range f.servers {
		from := s.inbox.Watch(key)
		if all = all && !from.IsZero(); from.After(since) {
			since = from
		}
	}
	if !all {
		return time.Time{}
	}
	return since
}

func (f *Family) Unwatch(key string) {
	for _, s := range f.servers {
		s.inbox.Unwatch(key)
	}
}

// Close ends the subscriptions.
func (f *Family) Close() {
	for _, s := range f.servers {
		s.inbox.Close()
	}
}

// message takes a message: the number of an attempt that has got a vote here, or has one and is to
// let an earlier ticket go first. Anybody who may publish can forge it, so the voter asks. A
// revocation is for the manager.
func (s *server) message(text string) {
	if strings.HasPrefix(text, "R ") {
		s.f.message(text)
		return
	}
	seq, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		return
	}
	s.f.mu.Lock()
	v := s.f.voters[seq]
	s.f.mu.Unlock()
	if v != nil {
		v.onHint(s.i)
	}
}

// subscribed is called on each new subscription: messages may have been missed.
func (s *server) subscribed() {
	s.f.each(func(v *voter) { v.onHint(s.i) })
	s.f.subscribed()
}
