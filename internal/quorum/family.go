// Package quorum implements the protocol of a lock that several independent servers decide: each
// server has one vote for it, and the lock belongs to the request that has the votes of a
// majority. internal/lease uses the package as it uses a single server: it waits for leases, and
// holds, renews and gives them back, and knows nothing of votes.
//
// A [Family] is the servers of one handle. A voter (voter.go) is one attempt: it asks each server
// for its vote (calls.go), counts the votes (count.go), and lets earlier tickets go first. The
// protocol (protocol.go) translates between the two: a call of internal/lease is a joint call, a
// round of calls to the servers. A server that has forgotten what it voted for abstains
// (memory.go).
//
// Locks: voter.mu comes before Family.mu and memory.mu, which are leaves. While one is held, nothing is
// sent, and nothing of internal/lease is called: what is to be done is collected, and done once the
// lock is free.
package quorum

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold/internal/call"
	"github.com/leasehold-go/leasehold/internal/keys"
	"github.com/leasehold-go/leasehold/internal/lease"
	"github.com/leasehold-go/leasehold/internal/nested"
)

type Family struct {
	keys    keys.Family
	servers []*server
	need    int       // votes that are a majority
	born    string    // the Redis key that tells whether a server may vote
	epoch   time.Time // an hour before its birth, so that no time of its life is 0; see micros

	// Set by Open, before anything is sent.
	handle     string
	ttl        time.Duration
	message    func(string)
	subscribed func()

	active sync.WaitGroup  // calls without an outcome, timers and goroutines
	life   context.Context // until Settle
	end    context.CancelFunc

	memory memory

	mu     sync.Mutex
	voters map[uint64]*voter // by their sequence number
}

// New makes the servers of a handle. It asks each server for its run id, for a moment, so that the same
// server is not counted twice.
func New(rdbs []redis.UniversalClient, family keys.Family) (*Family, []error) {
	f := &Family{
		keys: family, need: len(rdbs)/2 + 1, born: family.Together().Part("born"),
		epoch: time.Now().Add(-time.Hour), voters: map[uint64]*voter{},
		memory: memory{over: make([]int64, len(rdbs))},
	}
	f.life, f.end = context.WithCancel(context.Background())
	if n := len(rdbs); n != 3 && n != 5 && n != 7 && n != 9 {
		return f, []error{keys.Bad("rdbs", "has %d clients; want those of 3, 5, 7 or 9 servers", n)}
	}
	var errs []error
	for i, rdb := range rdbs {
		client, err := call.NewClient(rdb)
		switch {
		case err != nil:
			errs = append(errs, keys.Bad(field(i), "cannot be used: %v", err))
		case client.IsCluster():
			errs = append(errs, keys.Bad(field(i), "is a %T, a Cluster client; want the client of one server", rdb))
		case reflect.ValueOf(rdb).Comparable() && slices.Contains(rdbs[:i], rdb):
			errs = append(errs, keys.Bad(field(i), "is the client %s again; want one client for each server", field(slices.Index(rdbs, rdb))))
		}
		f.servers = append(f.servers, &server{f: f, i: i, rdb: rdb, client: client})
	}
	if len(errs) > 0 {
		return f, errs
	}
	return f, f.twice()
}

func field(i int) string { return fmt.Sprintf("rdbs[%d]", i) }

const (
	// askWithin bounds the question for the servers' run ids, when a handle is made.
	askWithin = time.Second
	// othersWithin bounds it once a majority has answered, or the time that they took does if it is longer.
	othersWithin = 100 * time.Millisecond
)

// twice returns an error for each server that is there twice. A server that does not answer in
// time is asked again before its first vote counts.
func (f *Family) twice() (errs []error) {
	ctx, cancel := context.WithTimeout(context.Background(), askWithin)
	defer cancel()
	type answer struct {
		i   int
		run string
	}
	answers := make(chan answer, len(f.servers))
	for i, s := range f.servers {
		go func() {
			run := ""
			defer func() { // also if a hook panics or ends this goroutine
				_ = recover()
				answers <- answer{i, run}
			}()
			if m := runIDField.FindStringSubmatch(s.rdb.Info(ctx, "server").Val()); m != nil {
				run = m[1]
			}
		}()
	}
	runs, began := make([]string, len(f.servers)), time.Now()
	for n := range f.servers {
		if n == f.need {
			time.AfterFunc(max(othersWithin, time.Since(began)), cancel)
		}
		select {
		case a := <-answers:
			runs[a.i] = a.run
		case <-ctx.Done():
		}
	}
	for i, run := range runs {
		if j := slices.Index(runs, run); run != "" && j < i {
			errs = append(errs, keys.Bad(field(i), "is the same server as %s (run id %.8s…); want different servers", field(j), run))
		}
	}
	return errs
}

// Open begins the life of the handle: see lease.Quorum.
func (f *Family) Open(handle string, ttl time.Duration, message func(string), subscribed func()) lease.Messages {
	f.handle, f.ttl, f.message, f.subscribed = handle, ttl, message, subscribed
	for _, s := range f.servers {
		s.client.CountQuestions(f.active.Go) // not in the handle: probes overlap, and it would never close
		s.inbox = s.newInbox()
	}
	return f
}

// Settle ends what still runs. Votes of servers that do not answer end by themselves.
func (f *Family) Settle() {
	f.end()
	f.active.Wait()
	for _, s := range f.servers {
		s.client.Settle()
	}
}

func (f *Family) Do(ctx context.Context, c *call.Call) ([]int64, error) { return c.DoJointly(ctx) }

func (f *Family) Start(ctx context.Context, active *sync.WaitGroup, calls ...*call.Call) {
	for _, c := range calls {
		c.Begin(ctx, active)
	}
}

// Brief returns a ctx for several calls that must end within one bound.
func (f *Family) Brief() context.Context { return f.servers[0].client.Brief() }

// Now returns the time of the clock that stands for all servers, which is the local one: the
// replies of joint calls tell it. The clocks of the servers are the concern of the voters.
func (f *Family) Now(string) (us int64, wait *call.Question) { return f.micros(time.Now()), nil }
func (f *Family) Learn(string, call.Sample)                  {}

// Node returns the name of the servers together.
func (f *Family) Node(string) string { return "" }

func (f *Family) micros(t time.Time) int64 {
	return t.Sub(f.epoch).Microseconds()
}

// Away reports whether so many servers are known not to answer that the others are no majority.
func (f *Family) Away(key string) bool {
	away := 0
	for _, s := range f.servers {
		if s.client.Away(key) {
			away++
		}
	}
	return away > len(f.servers)-f.need
}

// Trouble returns why a call had no answer from one of so many servers that the others are no majority.
func (f *Family) Trouble(key string) error {
	var why []error
	for _, s := range f.servers {
		if err := s.client.Trouble(key); err != nil {
			why = append(why, err)
		}
	}
	if len(why) <= len(f.servers)-f.need {
		return nil
	}
	return why[0]
}

// Reachable returns nil unless Away. Then it waits for a probe of each server that is away.
func (f *Family) Reachable(ctx context.Context, key string) error {
	if !f.Away(key) {
		return nil
	}
	ctx = nested.Calm{Context: ctx}
	errs := make([]error, len(f.servers))
	var all sync.WaitGroup
	for i, s := range f.servers {
		all.Go(func() { errs[i] = s.client.Reachable(ctx, key) })
	}
	all.Wait()
	reached := 0
	var why error
	for _, err := range errs {
		if err == nil {
			reached++
		}
		why = cmp.Or(why, err)
	}
	if reached >= f.need {
		return nil
	}
	return &noMajority{have: reached, need: f.need, cause: why}
}

// median returns the time (µs) that the clock in the middle shows now, of those that are known, and
// how many are known.
func (f *Family) median(key string) (us int64, known int) {
	all := make([]int64, 0, len(f.servers))
	for _, s := range f.servers {
		if us, _ := s.client.Now(key); us != 0 {
			all = append(all, us)
		}
	}
	if len(all) == 0 {
		return 0, 0
	}
	slices.Sort(all)
	return all[(len(all)-1)/2], len(all)
}

// clocks calls then once the clocks of a majority are known, or with an error.
func (f *Family) clocks(key string, then func(error)) {
	if _, known := f.median(key); known >= f.need {
		then(nil)
		return
	}
	f.active.Go(func() {
		ctx, cancel := context.WithTimeout(f.life, call.Bound)
		defer cancel()
		_, err := ask(ctx, f, 0, func(ctx context.Context, s *server) (int64, error) { return s.client.Time(ctx, key) })
		then(err)
	})
}

func (f *Family) each(fn func(v *voter)) {
	f.mu.Lock()
	all := slices.Collect(maps.Values(f.voters))
	f.mu.Unlock()
	for _, v := range all {
		fn(v)
	}
}

var (
	errNotYet    = errors.New("no answer yet")
	errForgotten = errors.New("has forgotten the vote")
)

// A noMajority says why fewer servers than a majority can be counted.
type noMajority struct {
	have, need int
	cause      error  // the one that says most
	each       string // what each server said; "": only cause is known
}

func (e *noMajority) Error() string {
	return fmt.Sprintf("%d servers can be counted, of the %d that are needed: %s", e.have, e.need, cmp.Or(e.each, fmt.Sprint(e.cause)))
}

func (e *noMajority) Unwrap() error { return e.cause }

// An abstention is the answer of a server that does not vote. Its script has done nothing.
type abstention struct{ left time.Duration }

func (e *abstention) Error() string {
	if e.left > 0 {
		return fmt.Sprintf("it was restarted or flushed, and abstains for another %v", e.left)
	}
	return "it was restarted or flushed, and must hear the highest token of a majority"
}

func isAbstention(err error) bool {
	_, is := err.(*abstention)
	return is
}

func (e *abstention) Is(target error) bool { return target == call.ErrNotSent }
