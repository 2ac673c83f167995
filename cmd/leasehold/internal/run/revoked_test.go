package run

import (
	"context"
	"errors"
	"io"
	"os"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold/internal/redistest"
)

func TestMain(m *testing.M) { redistest.Main(m) }

// A tool that is not to wait takes no answer for no "busy": it asks again.
func TestNoAnswerIsNotBusy(t *testing.T) {
	rdb := redistest.MiniClient(t)
	silent := 2
	rdb.AddHook(&redistest.Hooks{Pipeline: func(ctx context.Context, cmds []redis.Cmder, next redis.ProcessPipelineHook) error {
		if silent--; silent >= 0 {
			return io.ErrUnexpectedEOF
		}
		return next(ctx, cmds)
	}})
	f := &family{rdbs: []redis.UniversalClient{rdb}, stream: redistest.Name(t)}
	err := f.awaitRevoked(t.Context(), true)
	redistest.Check(t, err == nil && silent < 0, "%v, with %d silent pipelines left", err, silent)
}

type always struct{}

func (always) Context() context.Context                    { return context.Background() }
func (always) Deadline() time.Time                         { return time.Now().Add(time.Hour) }
func (always) ID() string                                  { return "id" }
func (always) Extend(context.Context, time.Duration) error { return nil }

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
	gave := 0
	opened := &family{rdbs: []redis.UniversalClient{redistest.MiniClient(t)}, stream: redistest.Name(t)}
	opened.acquire = func(ctx context.Context, _ bool) (*held, error) {
		<-ctx.Done()
		return &held{lease: always{}, release: func() error { gave++; return nil }}, nil
	}
	o := Options{Mutex: redistest.Name(t), Key: "k", Wait: time.Millisecond, TTL: time.Second}
	_, err := await(func(context.Context) (*family, error) { return opened, nil }, &family{}, o, nil)
	if failure := (*Error)(nil); !errors.As(err, &failure) || failure.Code != CodeConflict || gave != 1 {
		t.Errorf("%v; it was given back %d times", err, gave)
	}
}
