package leasehold_test

import (
	"context"
	"errors"
	"os"
	"slices"
	"strings"
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
	rules := redistest.Must(redistest.DocumentedACL())(t)
	// The tests use Replicas, too, which take more than the list.
	security := redistest.Must(os.ReadFile("docs/security.md"))(t)
	const replicas = "+wait +pexpire"
	redistest.Check(t, strings.Contains(string(security), "`"+replicas+"`"),
		"docs/security.md does not name %s for Replicas", replicas)
	rules = append(rules, strings.Fields(replicas)...)
	for _, v := range redistest.Installed() {
		t.Run(v.String(), func(t *testing.T) {
			srv := redistest.StartReplicated(t, v, 1).Primary
			admin := srv.Client()
			as := func(name string, rules []string) *redis.Client {
				redistest.WantErr(t, setUser(t, admin, name, rules))
				return srv.Client(func(o *redis.Options) { o.Username, o.Password = name, "secret" })
			}
			redistest.WantErr(t, useAll(t, 30*time.Second, admin, as("app", rules), as("app2", rules)))
			if v != redistest.Newest(t) {
				return
			}
			for i, rule := range rules {
				if neededAtTimes[rule] != "" || !strings.HasPrefix(rule, "+") {
					continue
				}
				without := slices.Delete(slices.Clone(rules), i, i+1)
				redistest.WantErr(t, admin.FlushAll(t.Context()).Err())
				redistest.Check(t, useAll(t, 5*time.Second, admin, as("less", without), as("less2", without)) != nil, "nothing fails without %s", rule)
			}
		})
	}
}

// neededAtTimes are the commands without which useAll does not fail, and when they are needed.
var neededAtTimes = map[string]string{
	"+subscribe": "to be quick: nothing depends on messages", "+unsubscribe": "the same", "+ping": "the same",
	"+zremrangebyrank": "where a holder died",
	"+zunionstore":     "where a part of a family with a total was lost", "+pexpiretime": "the same",
	"+pexpire": "where memory has run out",
	"+hmget":   "once the mark that a setting leaves for 5 s is gone",
}

func setUser(t *testing.T, rdb *redis.Client, name string, rules []string) error {
	args := []any{"acl", "setuser", name, "reset", "on", ">secret"}
	for _, rule := range rules {
		args = append(args, rule)
	}
	return rdb.Do(t.Context(), args...).Err()
}

// In a Cluster the further rules are enough together with the first ones, and
// hand-overs fail without those that let scripts publish there.
func TestDocumentedACLInACluster(t *testing.T) {
	single := redistest.Must(redistest.DocumentedACL())(t)
	more := redistest.Must(redistest.DocumentedClusterACL())(t)
	c := redistest.StartPatientCluster(t, redistest.Newest(t))
	as := func(name, without string) redis.UniversalClient {
		all := slices.Concat(single, more, strings.Fields("+wait +pexpire")) // it uses Replicas
		all = slices.DeleteFunc(all, func(rule string) bool { return rule == without })
		for _, node := range c.Nodes {
			redistest.WantErr(t, setUser(t, node.Client(), name, all))
		}
		return c.Client(func(o *redis.ClusterOptions) { o.Username, o.Password = name, "secret" })
	}
	// A channel for all keys is of single servers.
	redistest.WantErr(t, useAll(t, 30*time.Second, c.Client(), as("app", "&leasehold:inbox:*"), as("app2", "&leasehold:inbox:*")))
	for _, rule := range []string{"+spublish", "&leasehold:*:inbox:*"} {
		redistest.Check(t, useAll(t, 5*time.Second, c.Client(), as("less", rule), as("less2", rule)) != nil, "nothing fails without %s", rule)
	}
}

// refusal is what must panics with.
type refusal struct{ error }

func must[T any](v T, err error) T {
	if err != nil {
		panic(refusal{err})
	}
	return v
}

func mustOK(err error) { must(0, err) }

// useAll makes each of the packages call each of its scripts, and returns the first error. It waits until what it
// needs has happened, which admin may look up.
func useAll(t *testing.T, within time.Duration, admin, one, two redis.UniversalClient) (err error) {
	ctx, cancel := context.WithTimeout(t.Context(), within)
	defer cancel()
	defer func() {
		switch failed := recover().(type) {
		case nil:
		case refusal:
			err = failed.error
		default:
			panic(failed)
		}
	}()
	useSemaphore(ctx, admin, one, two, semaphore.Config{Name: "acl", Limit: 2, TTL: 1500 * time.Millisecond}, "{acl:k}")
	useSemaphore(ctx, admin, one, two, semaphore.Config{Name: "total", Limit: 2, Total: 2, TTL: 1500 * time.Millisecond}, "{total}")
	useMutex(ctx, one, two)
	useSingleflight(ctx, one, two)
	return nil
}

func useSemaphore(ctx context.Context, admin, one, two redis.UniversalClient, cfg semaphore.Config, tag string) {
	a := must(semaphore.New(one, cfg))
	defer a.Close(ctx)
	b := must(semaphore.New(two, cfg))
	defer b.Close(ctx)
	for _, n := range []int{0, 3} { // the limits stay stored
		mustOK(a.SetLimit(ctx, "k", n))
		if cfg.Total > 0 {
			mustOK(a.SetTotal(ctx, n))
		}
	}
	l := must(a.AcquireN(ctx, "k", 2))
	waited := make(chan error, 1)
	go func() {
		l, err := b.AcquireN(ctx, "k", 2)
		if err == nil {
			err = errors.Join(renewed(l), l.Release())
		}
		waited <- err
	}()
	for queued := int64(0); queued == 0 && len(waited) == 0; time.Sleep(time.Millisecond) {
		queued = must(admin.ZCard(ctx, "leasehold:sem:"+tag+":queue").Result())
	}
	mustOK(l.Extend(ctx, 1500*time.Millisecond))
	mustOK(l.Release())
	mustOK(<-waited)
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

func useMutex(ctx context.Context, one, two redis.UniversalClient) {
	m := must(mutex.New(one, mutex.Config{Name: "acl", Replicas: 1}))
	defer m.Close(ctx)
	g := must(mutex.NewGuard(one, mutex.GuardConfig{Name: "acl"}))
	mustOK(m.Do(ctx, "k", func(ctx context.Context, token uint64) error { return g.Set(ctx, "k", token, "v", time.Minute) }))
	_, _, err := must(mutex.NewGuard(two, mutex.GuardConfig{Name: "acl"})).Get(ctx, "k")
	mustOK(err)
}

func useSingleflight(ctx context.Context, one, two redis.UniversalClient) {
	cfg := singleflight.Config[string]{Name: "acl", TTL: time.Minute, LeaseTTL: 1500 * time.Millisecond, ErrorTTL: time.Second}
	a := must(singleflight.New(one, cfg))
	defer a.Close(ctx)
	b := must(singleflight.New(two, cfg))
	defer b.Close(ctx)
	loading, loaded := make(chan struct{}, 8), make(chan error, 1)
	go func() {
		_, err := a.Do(ctx, "k", func(ctx context.Context) (string, error) {
			loading <- struct{}{}
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
		mustOK(err)
	}
	must(b.Do(ctx, "k", func(context.Context) (string, error) { return "", context.Canceled }))
	mustOK(<-loaded)
	must(a.Inspect(ctx, "k"))
	mustOK(b.Invalidate(ctx, "k"))
}
