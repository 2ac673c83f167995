package semaphore

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/internal/tests/harness"
	"github.com/leasehold-go/leasehold/semaphore"
)

// refusals is a hook that answers leaves in the server's name, for a while.
type refusals struct {
	text string
	left atomic.Int64
	said atomic.Int64
}

// answer is an error of the server.
type answer string

func (a answer) Error() string { return string(a) }
func (answer) RedisError()     {}

func (r *refusals) refuse(cmd redis.Cmder) error {
	if harness.CommandName(cmd) != "leave" || r.left.Add(-1) < 0 {
		return nil
	}
	r.said.Add(1)
	err := answer(r.text)
	cmd.SetErr(err)
	return err
}

func (r *refusals) DialHook(next redis.DialHook) redis.DialHook { return next }

func (r *refusals) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if err := r.refuse(cmd); err != nil {
			return err
		}
		return next(ctx, cmd)
	}
}

func (r *refusals) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		for _, cmd := range cmds {
			if err := r.refuse(cmd); err != nil {
				return err
			}
		}
		return next(ctx, cmds)
	}
}

// The server refuses to give back, several times, and then works again: the permit
// comes back long before its TTL.
func TestRefusedLeavesAreRepeated(t *testing.T) {
	srv := redistest.Shared(t, redistest.NeedServers(t)[0])
	for _, text := range []string{
		"MISCONF Redis is configured to save RDB snapshots, but it's currently unable to persist to disk.",
		"ERR max number of clients + cluster connections reached",
		"NOPERM this user has no permissions to run the 'evalsha' command",
		"OOM command not allowed when used memory > 'maxmemory'.",
	} {
		for _, times := range []int64{4, 8} {
			t.Run(strings.Fields(text)[0], func(t *testing.T) {
				t.Parallel()
				s := newSite(t, srv.Client())
				rdb := redistest.Shared(t, srv.Version).Client()
				r := &refusals{text: text}
				rdb.AddHook(r)
				h := s.closing(rdb, semaphore.Config{Limit: 1, TTL: time.Minute})
				l := redistest.Must(h.Acquire(t.Context(), s.Key))(t)
				r.left.Store(times)
				if err := l.Release(); err != nil {
					harness.IsErr(t, "release", err, leasehold.ErrUnavailable)
				}
				harness.Until(t, 10*time.Second, func() error {
					if s.InUse() != 0 {
						return errors.New("the permit is taken")
					}
					return nil
				})
				redistest.Expect(t, r.said.Load(), times, "%d leaves were refused")
			})
		}
	}
}

// A save has failed, and the server refuses all writes until one works.
func TestPermitComesBackAfterAFailedSave(t *testing.T) {
	srv := redistest.StartServer(t, redistest.NeedServers(t)[0], "--enable-protected-configs", "yes")
	s := newSite(t, srv.Client())
	h := s.closing(srv.Client(), semaphore.Config{Limit: 1, TTL: time.Minute})
	l := redistest.Must(h.Acquire(t.Context(), s.Key))(t)
	for _, set := range [][2]string{{"save", "3600 1"}, {"dir", "/proc"}} {
		redistest.WantErr(t, s.RDB.ConfigSet(t.Context(), set[0], set[1]).Err())
	}
	_ = s.RDB.BgSave(t.Context()).Err()
	harness.Until(t, redistest.Soon, func() error {
		if err := s.RDB.Set(t.Context(), "x", "y", time.Minute).Err(); err == nil || !strings.HasPrefix(err.Error(), "MISCONF") {
			return errors.New("the server still writes")
		}
		return nil
	})
	err := l.Release()
	harness.IsErr(t, "release", err, leasehold.ErrUnavailable)
	redistest.Check(t, err != nil && strings.Contains(err.Error(), "MISCONF"), "release: %v; want the server's words", err)
	time.Sleep(2 * time.Second) // several leaves are refused meanwhile
	redistest.WantErr(t, s.RDB.ConfigSet(t.Context(), "stop-writes-on-bgsave-error", "no").Err())
	works := time.Now()
	s.empty(1, 5*time.Second)
	t.Logf("the permit was back %v after the server worked again", time.Since(works))
}
