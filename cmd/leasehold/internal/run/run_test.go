//go:build unix

package run

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/mutex"
)

func TestMain(m *testing.M) {
	if len(os.Args) == 2 && os.Args[1] == listenerCommand {
		os.Exit(1) // a signal ends it before it is ready
	}
	redistest.Main(m)
}

// A tool that is not to wait takes no answer for no "busy": it asks again.
func TestNoAnswerIsNotBusy(t *testing.T) {
	rdb := redistest.MiniClient(t)
	silent := 2
	rdb.AddHook(redistest.Around(func(_ context.Context, _ []redis.Cmder, send func() error) error {
		if silent--; silent >= 0 {
			return io.ErrUnexpectedEOF
		}
		return send()
	}))
	f := &family{rdbs: []redis.UniversalClient{rdb}, stream: redistest.Name(t)}
	err := f.awaitRevoked(t.Context(), true)
	redistest.Check(t, err == nil && silent < 0, "%v, with %d silent pipelines left", err, silent)
}

// The words of a server, a reason and the name of a process may hold anything.
func TestWarningsAreHarmlessOnATerminal(t *testing.T) {
	r, w, err := os.Pipe()
	redistest.WantErr(t, err)
	defer r.Close()
	real := os.Stderr
	os.Stderr = w
	warn("%s", "\x1b[2J")
	os.Stderr = real
	redistest.WantErr(t, w.Close())
	redistest.Expect(t, string(redistest.Must(io.ReadAll(r))(t)), "leasehold: \\x1b[2J\n", "the warning is %q")
}

// A lease that comes as the time to wait is over is given back.
func TestLeaseThatComesTooLateIsGivenBack(t *testing.T) {
	rdb, o := redistest.MiniClient(t), Options{Mutex: redistest.Name(t), Key: "k", Wait: time.Millisecond, TTL: time.Second}
	m := redistest.Must(mutex.New(rdb, mutex.Config{Name: o.Mutex}))(t)
	defer m.Close(t.Context())
	opened := &family{rdbs: []redis.UniversalClient{rdb}, stream: o.Mutex, acquire: func(ctx context.Context, _ bool) (*held, error) {
		<-ctx.Done()
		l, err := m.Lock(t.Context(), o.Key)
		return &held{lease: l, release: l.Unlock}, err
	}}
	_, err := await(func(context.Context) (*family, error) { return opened, nil }, &family{}, o, nil)
	failure, ok := errors.AsType[*Error](err)
	redistest.Check(t, ok && failure.Code == CodeConflict, "%v", err)
	state := redistest.Must(m.Inspect(t.Context(), o.Key))(t)
	redistest.Check(t, !state.Held && state.LastToken > 0, "%+v", state)
}

// Where nobody has the lock and Redis is slow, the tool does not say that it was taken, and leaves no lease behind.
func TestSlowRedisIsNotBusy(t *testing.T) {
	rdb, o := redistest.MiniClient(t), Options{Mutex: redistest.Name(t), Key: "k", TTL: time.Second}
	m := redistest.Must(mutex.New(rdb, mutex.Config{Name: o.Mutex}))(t)
	defer m.Close(t.Context())
	slow := redis.NewClient(rdb.Options())
	defer slow.Close()
	slow.AddHook(redistest.Around(func(_ context.Context, _ []redis.Cmder, send func() error) error {
		<-t.Context().Done()
		return send()
	}))
	for name, f := range map[string]family{
		"the grant": {rdbs: []redis.UniversalClient{rdb}, acquire: func(ctx context.Context, _ bool) (*held, error) {
			<-ctx.Done()
			l, err := m.Lock(t.Context(), o.Key)
			return &held{lease: l, release: l.Unlock}, err
		}},
		"the look at what was revoked": {rdbs: []redis.UniversalClient{slow}, acquire: func(ctx context.Context, _ bool) (*held, error) {
			l, err := m.Lock(ctx, o.Key)
			return &held{lease: l, release: l.Unlock}, err
		}},
	} {
		o.Wait = 0
		if f.rdbs[0] == slow {
			o.Wait = 100 * time.Millisecond
		}
		_, err := await(func(context.Context) (*family, error) { return &f, nil }, &family{}, o, nil)
		failure, ok := errors.AsType[*Error](err)
		redistest.Check(t, ok && failure.Code == CodeUnreachable, "%s is slow: %v", name, err)
		state := redistest.Must(m.Inspect(t.Context(), o.Key))(t)
		redistest.Check(t, !state.Held && state.LastToken > 0, "%s is slow: %+v", name, state)
	}
}

// A lease that another process handed over lasts two seconds at first. It is lengthened before the program starts.
func TestLeaseThatWasHandedOverIsLengthened(t *testing.T) {
	rdb, name := redistest.MiniClient(t), redistest.Name(t)
	m := redistest.Must(mutex.New(rdb, mutex.Config{Name: name, TTL: 2 * time.Second}))(t)
	defer m.Close(t.Context())
	f := &family{rdbs: []redis.UniversalClient{rdb}, stream: name, acquire: func(ctx context.Context, _ bool) (*held, error) {
		l, err := m.Lock(ctx, "k")
		return &held{lease: l, release: l.Unlock}, err
	}}
	l := redistest.Must(take(t.Context(), f, Options{TTL: 5 * time.Minute}))(t)
	redistest.AtLeast(t, time.Until(l.Deadline()), 4*time.Minute, "the lease is held for %v")
	redistest.WantErr(t, l.release())
}

// A guard that only warns sleeps while its program goes on without the lease.
func TestGuardThatWarnsSleepsAfterTheLease(t *testing.T) {
	g := &guard{task: task{Lost: LostWarn}, program: 1, deadline: clock() - time.Second}
	redistest.Expect(t, g.due(), tick, "it sleeps for %v")
}

// A guard that starts slowly learns the deadline of the lease as it is by then, and after that of a signal that came
// for the program meanwhile.
func TestGuardLearnsTheDeadlineOnceItIsReady(t *testing.T) {
	m := redistest.Must(mutex.New(redistest.MiniClient(t), mutex.Config{Name: redistest.Name(t), TTL: 3 * time.Second}))(t)
	defer m.Close(t.Context())
	l := redistest.Must(m.Lock(t.Context(), "k"))(t)
	in, lines, words, out, err := pipes()
	redistest.WantErr(t, err)
	_ = words.Close()
	_ = out.Close()
	k := &keeper{lines: lines, answers: make(chan answer, 2)}
	a := &attendant{l: &held{lease: l, release: l.Unlock}, guard: k, o: Options{TTL: 3 * time.Second}}
	over := make(chan error, 1)
	signals := make(chan os.Signal, 1)
	signals <- syscall.SIGUSR1
	go func() {
		over <- a.attend(signals)
		_ = lines.Close()
	}()
	first := l.Deadline()
	redistest.Eventually(t, "a renewal", func() bool { return l.Deadline().Sub(first) > 100*time.Millisecond })
	k.answers <- answer{what: "ready"}
	var what string
	var deadline time.Duration
	redistest.Must(fmt.Fscan(in, &what, &deadline))(t)
	later := deadline - clock() - time.Until(first)
	redistest.Check(t, what == "deadline" && later > 50*time.Millisecond, "%s, %v later than before the renewal", what, later)
	var number int
	redistest.Must(fmt.Fscan(in, &what, &number))(t)
	redistest.Check(t, what == "signal" && number == int(syscall.SIGUSR1), "then %s %d", what, number)
	k.answers <- answer{what: "exit"}
	redistest.WantErr(t, <-over)
}

// Ctrl-C, or a hang-up, ends the listener before it is ready: the tool goes on, and can be ended.
func TestListenerEndsBeforeItIsReady(t *testing.T) {
	started := make(chan *listener, 1)
	go func() { started <- redistest.Must(startListener())(t) }()
	l := redistest.Get(t, "the listener", started)
	redistest.Check(t, l.toToolAlone(syscall.SIGINT, time.Now()), "what it did not hear has gone to the tool alone")
	l.end()
}
