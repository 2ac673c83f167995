package leasehold_test

import (
	"context"
	"errors"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/mutex"
	"github.com/leasehold-go/leasehold/semaphore"
	"github.com/leasehold-go/leasehold/singleflight"
)

// The documented rules for the server's user are enough for all that the packages
// do, and say nothing that is not needed: without any one command something fails.
func TestDocumentedACL(t *testing.T) {
	redistest.NeedServers(t)
	listed := redistest.Must(redistest.DocumentedACL())(t)
	var rules []any
	for _, rule := range listed {
		rules = append(rules, rule)
	}
	// The tests use Replicas, too, which take more than the list.
	security := redistest.Must(os.ReadFile("docs/security.md"))(t)
	const replicas = "+wait +pexpire"
	redistest.Check(t, strings.Contains(string(security), "`"+replicas+"`"),
		"docs/security.md does not name %s for Replicas", replicas)
	for _, rule := range strings.Fields(replicas) {
		rules = append(rules, rule)
	}
	for _, v := range redistest.Installed() {
		t.Run(v.String(), func(t *testing.T) {
			srv := redistest.StartReplicated(t, v, 1).Primary
			admin := srv.Client()
			as := func(name string, rules []any) *redis.Client {
				args := append([]any{"acl", "setuser", name, "reset", "on", ">secret"}, rules...)
				redistest.WantErr(t, admin.Do(t.Context(), args...).Err())
				return srv.Client(func(o *redis.Options) { o.Username, o.Password = name, "secret" })
			}
			redistest.WantErr(t, useAll(t, 30*time.Second, admin, as("app", rules), as("app2", rules)))
			if v != redistest.Newest(t) {
				return
			}
			for i, rule := range rules {
				switch rule {
				case "+subscribe", "+unsubscribe", "+ping":
					continue // nothing depends on messages: all is slower without
				case "+zremrangebyrank":
					continue // only where a holder died
				case "+zunionstore", "+pexpiretime":
					continue // only where a part of a family with a total was lost
				case "+pexpire":
					continue // only where memory has run out
				case "+hmget":
					continue // only once the mark that a setting leaves for 5 s is gone
				}
				if !strings.HasPrefix(rule.(string), "+") {
					continue
				}
				without := append(append([]any{}, rules[:i]...), rules[i+1:]...)
				redistest.WantErr(t, admin.FlushAll(t.Context()).Err())
				redistest.Check(t, useAll(t, 5*time.Second, admin, as("less", without), as("less2", without)) != nil, "nothing fails without %s", rule)
			}
		})
	}
}

// In a Cluster the further rules are enough together with the first ones, and
// hand-overs fail without those that let scripts publish there.
func TestDocumentedACLInACluster(t *testing.T) {
	single := redistest.Must(redistest.DocumentedACL())(t)
	more := redistest.Must(redistest.DocumentedClusterACL())(t)
	c := redistest.StartPatientCluster(t, redistest.Newest(t))
	as := func(name, without string) redis.UniversalClient {
		args := []any{"acl", "setuser", name, "reset", "on", ">secret"}
		for _, rule := range slices.Concat(single, more, strings.Fields("+wait +pexpire")) { // it uses Replicas
			if rule != without {
				args = append(args, rule)
			}
		}
		for _, node := range c.Nodes {
			redistest.WantErr(t, node.Client().Do(t.Context(), args...).Err())
		}
		return c.Client(func(o *redis.ClusterOptions) { o.Username, o.Password = name, "secret" })
	}
	// A channel for all keys is of single servers.
	redistest.WantErr(t, useAll(t, 30*time.Second, c.Client(), as("app", "&leasehold:inbox:*"), as("app2", "&leasehold:inbox:*")))
	for _, rule := range []string{"+spublish", "&leasehold:*:inbox:*"} {
		redistest.Check(t, useAll(t, 5*time.Second, c.Client(), as("less", rule), as("less2", rule)) != nil, "nothing fails without %s", rule)
	}
}

// useAll makes each of the packages call each of its scripts. It waits until what it
// needs has happened, which admin may look up.
func useAll(t *testing.T, within time.Duration, admin, one, two redis.UniversalClient) error {
	ctx, cancel := context.WithTimeout(t.Context(), within)
	defer cancel()
	permits := func(ctx context.Context, one, two redis.UniversalClient) error {
		return useSemaphore(ctx, admin, one, two, semaphore.Config{Name: "acl", Limit: 2, TTL: 1500 * time.Millisecond}, "{acl:k}")
	}
	totals := func(ctx context.Context, one, two redis.UniversalClient) error {
		return useSemaphore(ctx, admin, one, two, semaphore.Config{Name: "total", Limit: 2, Total: 2, TTL: 1500 * time.Millisecond}, "{total}")
	}
	for _, use := range []func(context.Context, redis.UniversalClient, redis.UniversalClient) error{permits, totals, useMutex, useSingleflight} {
		if err := use(ctx, one, two); err != nil {
			return err
		}
	}
	return nil
}

func useSemaphore(ctx context.Context, admin, one, two redis.UniversalClient, cfg semaphore.Config, tag string) error {
	a, err := semaphore.New(one, cfg)
	if err != nil {
		return err
	}
	defer a.Close(ctx)
	b, err := semaphore.New(two, cfg)
	if err != nil {
		return err
	}
	defer b.Close(ctx)
	for _, n := range []int{0, 3} { // the limits stay stored
		if err := a.SetLimit(ctx, "k", n); err != nil {
			return err
		}
		if cfg.Total == 0 {
			continue
		}
		if err := a.SetTotal(ctx, n); err != nil {
			return err
		}
	}
	l, err := a.AcquireN(ctx, "k", 2)
	if err != nil {
		return err
	}
	waited := make(chan error, 1)
	go func() {
		l, err := b.AcquireN(ctx, "k", 2)
		if err == nil {
			err = errors.Join(renewed(l), l.Release())
		}
		waited <- err
	}()
	for queued := int64(0); queued == 0 && len(waited) == 0; time.Sleep(time.Millisecond) {
		if queued, err = admin.ZCard(ctx, "leasehold:sem:"+tag+":queue").Result(); err != nil {
			return err
		}
	}
	if err := l.Extend(ctx, 1500*time.Millisecond); err != nil {
		return err
	}
	if err := l.Release(); err != nil {
		return err
	}
	return <-waited
}

// renewed waits until a lease was renewed, and returns why that did not happen.
func renewed(l *semaphore.Lease) error {
	for first := l.Deadline(); !l.Deadline().After(first); time.Sleep(time.Millisecond) {
		if l.Context().Err() != nil {
			return context.Cause(l.Context())
		}
	}
	return nil
}

func useMutex(ctx context.Context, one, two redis.UniversalClient) error {
	m, err := mutex.New(one, mutex.Config{Name: "acl", Replicas: 1})
	if err != nil {
		return err
	}
	defer m.Close(ctx)
	g, err := mutex.NewGuard(one, mutex.GuardConfig{Name: "acl"})
	if err != nil {
		return err
	}
	err = m.Do(ctx, "k", func(ctx context.Context, token uint64) error { return g.Set(ctx, "k", token, "v", time.Minute) })
	if err != nil {
		return err
	}
	if g, err = mutex.NewGuard(two, mutex.GuardConfig{Name: "acl"}); err != nil {
		return err
	}
	_, _, err = g.Get(ctx, "k")
	return err
}

func useSingleflight(ctx context.Context, one, two redis.UniversalClient) error {
	cfg := singleflight.Config[string]{Name: "acl", TTL: time.Minute, LeaseTTL: 1500 * time.Millisecond, ErrorTTL: time.Second}
	a, err := singleflight.New(one, cfg)
	if err != nil {
		return err
	}
	defer a.Close(ctx)
	b, err := singleflight.New(two, cfg)
	if err != nil {
		return err
	}
	defer b.Close(ctx)
	loading, once := make(chan struct{}), new(sync.Once)
	loaded := make(chan error, 1)
	go func() {
		_, err := a.Do(ctx, "k", func(ctx context.Context) (string, error) {
			once.Do(func() { close(loading) })
			for { // until the lease was renewed
				state, err := a.Inspect(ctx, "k")
				if err != nil {
					return "", err
				}
				if state.LoadingFor+state.LeaseEndsIn > cfg.LeaseTTL+100*time.Millisecond {
					return strings.Repeat("v", 5000), nil
				}
				time.Sleep(10 * time.Millisecond)
			}
		})
		loaded <- err
	}()
	select {
	case <-loading:
	case err := <-loaded:
		return err
	}
	if _, err := b.Do(ctx, "k", func(context.Context) (string, error) { return "", context.Canceled }); err != nil {
		return err
	}
	if err := <-loaded; err != nil {
		return err
	}
	if _, err := a.Inspect(ctx, "k"); err != nil {
		return err
	}
	return b.Invalidate(ctx, "k")
}
