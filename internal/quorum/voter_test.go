package quorum

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold/internal/call"
	"github.com/leasehold-go/leasehold/internal/keys"
	"github.com/leasehold-go/leasehold/internal/life"
	"github.com/leasehold-go/leasehold/internal/protocol"
	"github.com/leasehold-go/leasehold/internal/redistest"
)

// aVoter returns one of three servers' voters that wants the lock. Nothing is sent.
func aVoter(t *testing.T) *voter {
	t.Helper()
	family := keys.Family{Kind: keys.Quorum, Name: "f", Prefix: "p"}
	f := &Family{
		keys: family, need: 2, born: "born", epoch: time.Now().Add(-time.Hour), ttl: 10 * time.Second,
		voters: map[uint64]*voter{}, message: func(string) {}, memory: memory{over: make([]int64, 3)},
	}
	f.life, f.end = context.WithCancel(context.Background())
	for i := range 3 {
		rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
		t.Cleanup(func() { _ = rdb.Close() })
		client := redistest.Must(call.NewClient(rdb))(t)
		f.servers = append(f.servers, &server{f: f, i: i, rdb: rdb, client: client})
	}
	res := &Resource{f: f}
	for i, part := range []string{"holders", "queue", "alive", "fence", "born"} {
		res.keys[i] = part
	}
	v := res.Request(protocol.Terms{Handle: "handle", Seq: 1, Permits: 1, TTL: f.ttl, Limit: 1}).(*voter)
	v.waits = true
	v.begin()
	t.Cleanup(func() {
		v.mu.Lock()
		defer v.mu.Unlock()
		v.stopTimer()
	})
	return v
}

// votes gives the voter the votes of the servers in turn, with these fences, for ever longer.
func (v *voter) votes(fences ...uint64) {
	for i, fence := range fences {
		v.seats[i] = seat{stand: held, fence: fence, until: time.Now().Add(time.Duration(i+1) * time.Second)}
	}
}

func TestDeadlineIsThatOfAMajority(t *testing.T) {
	v := aVoter(t)
	v.votes(5, 5, 5)
	v.token = 5
	if at := v.deadline(); at != v.seats[1].until {
		t.Errorf("it ends %v before the second of three votes does", v.seats[1].until.Sub(at))
	}
	v.seats[2].fence = 4 // a vote with a lower token does not count
	if at := v.deadline(); at != v.seats[0].until {
		t.Errorf("with two votes it ends %v before the first of them does", v.seats[0].until.Sub(at))
	}
	v.seats[1].fence = 4
	at := v.deadline()
	redistest.Check(t, at.IsZero(), "with one vote it ends %v from now", time.Until(at))
}

func TestOneTokenForAMajority(t *testing.T) {
	v := aVoter(t)
	v.votes(5, 7)
	var todo todo
	v.count(&todo)
	if v.phase != wanting || v.target != 7 || v.seats[0].raising != 7 || v.seats[1].raising != 0 || len(todo) != 1 {
		t.Errorf("phase %d, target %d, %d calls; want the first server to be asked for the token 7", v.phase, v.target, len(todo))
	}
	v.seats[0].fence = 7
	if v.count(&todo); v.phase != holding || v.token != 7 {
		t.Errorf("phase %d, token %d; want it to hold with the token 7", v.phase, v.token)
	}
}

// A vote that is yielded counts for nothing until the yield is answered, or void. An enter that was
// sent before may have run before it. A yield without an answer may still run.
func TestYieldedVoteDoesNotCount(t *testing.T) {
	const void = 5_000_000 // µs
	v := aVoter(t)
	v.mu.Lock() // its timer looks again meanwhile
	defer v.mu.Unlock()
	v.votes(5)
	var todo todo
	v.ask(0, &todo)
	enter := v.seats[0].flights[0]
	v.yield(0, &todo)
	yield := v.seats[0].flights[1]
	yield.void = void
	granted := func(at int64) []int64 { return []int64{1, at, 9000, 5, 0} }
	if v.apply(enter, granted(void-2000), nil, &todo); v.seats[0].stand != yielding {
		t.Fatalf("an enter from before the yield counts: %d", v.seats[0].stand)
	}
	v.apply(yield, nil, errors.New("i/o timeout"), &todo)
	again := v.seats[0].flights[len(v.seats[0].flights)-1]
	redistest.CheckNow(t, again != enter && again != yield, "nothing asks once the yield has had no answer")
	if v.apply(again, granted(void-1), nil, &todo); v.seats[0].stand != yielding {
		t.Fatalf("a vote counts though a copy of the yield may still come: %d", v.seats[0].stand)
	}
	v.ask(0, &todo)
	again = v.seats[0].flights[len(v.seats[0].flights)-1]
	if v.apply(again, granted(void), nil, &todo); v.seats[0].stand != held {
		t.Fatalf("the vote does not count though the yield is void: %d", v.seats[0].stand)
	}
}

// The vote of a server counts from the sending of the call that it answers.
func TestVoteCountsFromTheSending(t *testing.T) {
	v := aVoter(t)
	var todo todo
	v.ask(0, &todo)
	enter := v.seats[0].flights[0]
	enter.c.Sent = time.Now().Add(-4 * time.Second)
	v.apply(enter, []int64{1, 1, 9000, 5, 0}, nil, &todo)
	until := v.seats[0].until
	redistest.Check(t, until == enter.c.Sent.Add(9*time.Second), "a vote for 9 s lasts until %v after the sending", until.Sub(enter.c.Sent))
}

// A server that is known not to answer gets probes only. What is to be given back there waits in
// one line.
func TestServerThatIsAwayGetsProbes(t *testing.T) {
	v := aVoter(t)
	s := v.f.servers[0]
	v.ask(0, &todo{})
	s.client.Suspect(v.res.FirstKey(), time.Now(), errors.New("connection refused"))
	v.seats[0].asked = time.Time{}
	v.decide(func(sends *todo) { v.ask(0, sends) })
	if v.seats[0].stand != failed || !errors.Is(v.seats[0].err, call.ErrNotSent) {
		t.Errorf("its server is away, and the voter waits for it: %v", v.seats[0].err)
	}
	for range 3 {
		v.decide(func(leaves *todo) { v.leaveAlone(0, v.member, leaves) })
	}
	s.mu.Lock()
	n := len(s.stragglers)
	redistest.Check(t, n == 3 && s.sweeping, "%d leaves wait in its line; want 3", n)
	s.mu.Unlock()
	v.f.end()
	v.f.active.Wait()
}

// A server that has forgotten is told the highest token only once it was seen that its abstention
// is over: before that, a vote that it forgot may still count.
func TestFloorIsReadAfterTheAbstention(t *testing.T) {
	v := aVoter(t)
	votes := look{ok: true, votes: true, top: 7}
	over := look{ok: true, birth: 5}
	e := v.f.mayVote([]look{votes, votes, over}, []int64{0, 0, 0})
	redistest.Check(t, e == nil, "it may vote by what was read at the end of its abstention: %+v", e)
	e = v.f.mayVote([]look{votes, votes, over}, []int64{0, 0, 5})
	redistest.Check(t, e != nil && e.births[2] == 5 && e.floor == 7, "it may not vote with the floor 7: %+v", e)
}

// A server that is away while its fence is to be raised does not send its voter round without end.
func TestFenceOfAServerThatIsAwayIsRaisedLater(t *testing.T) {
	v := aVoter(t)
	v.votes(5, 7)
	v.f.servers[0].client.Suspect(v.res.FirstKey(), time.Now(), errors.New("connection refused"))
	v.decide(v.step)
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.phase != wanting || v.seats[0].sent != 1 || v.timerAt.IsZero() {
		t.Errorf("phase %d, %d calls, the next at %v; want one call, and another one later", v.phase, v.seats[0].sent, v.timerAt)
	}
}

// A leave that waits for its server names the calls that were under way when it was made, whatever
// their replies change meanwhile.
func TestLeaveThatWaitsOutlivesLateReplies(t *testing.T) {
	v := aVoter(t)
	s := v.f.servers[0]
	v.ask(0, &todo{})
	v.seats[0].asked = time.Time{}
	v.ask(0, &todo{})
	first := v.seats[0].flights[0]
	s.client.Suspect(v.res.FirstKey(), time.Now(), errors.New("connection refused"))
	v.decide(v.abandon)
	v.leave(false, func([]int64, []string, error) {})
	v.onReply(first, nil, errors.New("i/o timeout"))
	s.mu.Lock()
	waiting := s.stragglers
	s.mu.Unlock()
	redistest.CheckNow(t, len(waiting) == 1, "%d leaves wait; want 1", len(waiting))
	redistest.Check(t, waiting[0].prepare() != nil, "there is no leave")
	v.f.end()
	v.f.active.Wait()
}

// A leave that is repeated, since no majority answers, waits once in the line of a server that is away.
func TestRepeatedLeaveWaitsOnce(t *testing.T) {
	v := aVoter(t)
	s := v.f.servers[0]
	v.ask(0, &todo{})
	s.client.Suspect(v.res.FirstKey(), time.Now(), errors.New("connection refused"))
	for range 3 {
		v.leave(false, func([]int64, []string, error) {})
	}
	s.mu.Lock()
	redistest.Expect(t, len(s.stragglers), 1, "%d leaves wait")
	s.mu.Unlock()
	v.f.end()
	v.f.active.Wait()
}

// A look at the memory ends soon where no majority answers: meanwhile no other look begins. The end of the handle
// ends it before.
func TestLookAtTheMemoryIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := aVoter(t)
		silent := redistest.Around(func(context.Context, []redis.Cmder, func() error) error {
			time.Sleep(3 * late)
			return errors.New("no answer")
		})
		for _, s := range v.f.servers {
			s.rdb.AddHook(silent)
			s.client.CountQuestions(v.f.active.Go)
		}
		began := time.Now()
		v.f.lookAll(nil)
		redistest.Expect(t, time.Since(began), late, "it took %v")
		time.AfterFunc(late/2, v.f.end)
		v.f.remember()
		redistest.Expect(t, time.Since(began), late+late/2, "both took %v")
		v.f.active.Wait()
	})
}

// A round waits longer while it is being found out whether servers that have never voted may begin.
func TestRoundWaitsWhileServersBegin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for kind, want := range map[roundKind]time.Duration{entering: 2 * late, renewing: late} {
			v := aVoter(t)
			v.seats[0].err = &abstention{}
			began, took := time.Now(), time.Duration(0)
			v.phase = map[roundKind]phase{entering: wanting, renewing: holding}[kind]
			v.decide(func(*todo) { v.open(kind, began, func(outcome) { took = time.Since(began) }) })
			v.f.active.Wait()
			redistest.Expect(t, took, want, "a round took %v")
		}
	})
}

// A place at one server and a full queue at another do not say yet what a majority says.
func TestFullQueueIsThatOfAMajority(t *testing.T) {
	v := aVoter(t)
	r := &round{kind: entering, pending: []bool{false, false, true}}
	v.seats[0].stand, v.seats[1].stand = queued, full
	_, over := v.judge(r)
	redistest.Check(t, !over, "it is over before the third server has answered")
	r.pending[2] = false
	for third, want := range map[stand]life.Code{queued: life.Queued, full: life.QueueFull} {
		v.seats[2].stand = third
		o, over := v.judge(r)
		redistest.Check(t, over && o.code == want, "%v, code %d; want %d", over, o.code, want)
	}
}

// A server that is there twice has no vote in the moment in which it tells its run id again.
func TestServerThatIsThereTwice(t *testing.T) {
	servers := aVoter(t).f.servers
	first, again := servers[0], servers[1]
	first.meet("a")
	again.meet("a")
	redistest.Check(t, first.twice() == nil && again.twice() != nil, "it has %v and %v", first.twice(), again.twice())
	first.mu.Lock() // the look at the others waits for it
	first.run = "b" // it was restarted
	met := make(chan struct{})
	go func() { again.meet("b"); close(met) }()
	redistest.Eventually(t, "the run id is noted", func() bool { return again.runID() == "b" })
	redistest.Check(t, again.twice() != nil, "it votes twice meanwhile")
	first.mu.Unlock()
	<-met
	redistest.Check(t, again.twice() != nil, "it votes twice afterwards")
}

type brokenDone struct{ context.Context }

func (brokenDone) Done() <-chan struct{} { panic("Done") }

// While the servers are known not to answer, a caller's ctx ends no process.
func TestCtxOfACallerWhileServersAreAway(t *testing.T) {
	f := aVoter(t).f
	for _, s := range f.servers {
		s.client.Suspect("k", time.Now(), errors.New("connection refused"))
	}
	err := f.Reachable(brokenDone{t.Context()}, "k")
	redistest.Check(t, errors.Is(err, call.ErrNotSent), "%v", err)
}

// A minority without an answer explains no loss: the others are a majority.
func TestTroubleIsThatOfAMajority(t *testing.T) {
	f := aVoter(t).f
	refused := errors.New("connection refused")
	f.servers[0].client.Heard("k", time.Now(), refused)
	redistest.Expect(t, f.Trouble("k"), nil, "of one server: %v")
	f.servers[1].client.Heard("k", time.Now(), refused)
	redistest.WantErr(t, f.Trouble("k"), refused)
}
