package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold/cmd/leasehold/internal/run"
	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/mutex"
	"github.com/leasehold-go/leasehold/semaphore"
	"github.com/leasehold-go/leasehold/singleflight"
)

// rights are the rules of docs/operations.md for a user of each kind, and those of
// docs/security.md for a service.
type rights map[string][]string

func documentedRights(t *testing.T, cluster bool) rights {
	t.Helper()
	text := redistest.Must(os.ReadFile("../../../../docs/operations.md"))(t)
	app := redistest.Must(redistest.DocumentedACL())(t)
	r := rights{"app": append([]string{"on", ">secret"}, app...)}
	for _, line := range regexp.MustCompile(`(?m)^ACL SETUSER (\w+) (.+)$`).FindAllStringSubmatch(string(text), -1) {
		r[line[1]] = strings.Fields(line[2])
	}
	further := regexp.MustCompile("(?m)^In a Cluster .+Users that use or revoke need `([^`]+)` besides, and all three need `([^`]+)`").FindSubmatch(text)
	redistest.CheckNow(t, len(r["viewer"]) >= 10 && len(r["oncall"]) >= 4 && further != nil,
		"docs/operations.md has the rights %v, and %q in a Cluster", r, further)
	r["oncall"] = slices.Concat(r["app"], r["oncall"])
	if cluster {
		for user := range r {
			r[user] = append(r[user], strings.Fields(string(further[2]))...)
			if user != "viewer" {
				r[user] = append(r[user], strings.Fields(string(further[1]))...)
			}
		}
	}
	return r
}

// as makes a user with rules, and says where it goes in.
func as(t *testing.T, target redistest.Target, user string, rules []string) (rdb redis.UniversalClient, url string) {
	t.Helper()
	nodes := []*redistest.Server{target.Server}
	if target.Cluster != nil {
		nodes = target.Cluster.Nodes
	}
	for _, node := range nodes {
		redistest.WantErr(t, node.Client().ACLSetUser(t.Context(), user, append([]string{"reset"}, rules...)...).Err())
	}
	rdb = target.Client(t, func(o *redis.UniversalOptions) { o.Username, o.Password = user, "secret" })
	return rdb, strings.Replace(target.URL(t), "://", "://"+user+":secret@", 1)
}

// The documented lines are enough for services that use, people that read and people that revoke, and say nothing
// that is not needed. That each rule of the first is needed is shown by TestDocumentedACL.
func TestRightsOfOperations(t *testing.T) { redistest.EachReal(t, tryRights) }

func tryRights(t *testing.T, target redistest.Target) {
	documented := documentedRights(t, target.Cluster != nil)
	app, _ := as(t, target, "app", documented["app"])
	seen, lock := use(t, app)

	viewer, url := as(t, target, "viewer", documented["viewer"])
	// Nothing was sent that could have had an effect.
	for _, args := range [][]string{
		{"revoke", "--mutex", "rights-jobs", "--key", "nightly", "--reason", "a test", lock.ID()},
		{"revoke", "--semaphore", "rights-exports-0", "--key", "acme", "--reason", "a test", lock.ID()},
		{"set-limit", "--semaphore", "rights-exports-0", "--key", "acme", "3"},
		{"set-limit", "--semaphore", "rights-exports-0", "--key", "acme", "3", "--has-total=false"},
	} {
		_, err := do(t, url, args...)
		e, ok := errors.AsType[*run.Error](err)
		redistest.Check(t, ok && e.Code == run.CodeRefused && strings.Contains(err.Error(), "lacks a right") && !strings.Contains(err.Error(), "may have been"), "a viewer: %q: %v", args, err)
	}
	redistest.WantErr(t, read(t, viewer, url, seen))
	oncall, url := as(t, target, "oncall", documented["oncall"])
	redistest.WantErr(t, read(t, oncall, url, seen))
	if target.Version == redistest.Newest(t) { // each rule is needed
		for _, rule := range documented["viewer"] {
			// Two commands are sent only where the client library or the URL does not say enough, and one while a slot moves.
			if !strings.ContainsAny(rule[:1], "+%") || rule == "+command" || rule == "+cluster|shards" || rule == "+asking" {
				continue
			}
			less, url := as(t, target, "less", without(documented["viewer"], rule))
			redistest.Check(t, read(t, less, url, seen) != nil, "nothing fails for a viewer without %s", rule)
		}
		m := redistest.Must(mutex.New(app, mutex.Config{Name: "rights-jobs"}))(t)
		defer m.Close(t.Context())
		// +xrange reads the streams, and only a full one is read for a revocation.
		for _, rule := range []string{"+zscan", "+xadd", "+xlen"} {
			// A lock for each: a script that is refused in its middle has taken it.
			l := redistest.Must(m.Lock(t.Context(), "without "+rule))(t)
			_, url := as(t, target, "less", without(documented["oncall"], rule))
			out, err := do(t, url, "revoke", "--mutex", "rights-jobs", "--key", "without "+rule, "--reason", "a test", l.ID())
			redistest.Check(t, err != nil, "nothing fails for an engineer on call without %s: %s", rule, out)
		}
	}
	ok(t, url, "", "revoke", "--mutex", "rights-jobs", "--key", "nightly", "--reason", "host is gone", lock.ID())
	wantRevoked(t, lock.Context())
	entries := redistest.Must(oncall.XRange(t.Context(), "leasehold:mtx:{rights-jobs:nightly}:audit", "-", "+").Result())(t)
	redistest.AtLeast(t, len(entries), 1, "the audit stream has %d entries")
}

func without(rules []string, rule string) []string {
	return slices.DeleteFunc(slices.Clone(rules), func(r string) bool { return r == rule })
}

// use takes, queues, loads and writes, and leaves all of it for listings. It returns
// how each is shown, and the lock that is held.
func use(t *testing.T, rdb redis.UniversalClient) (families []string, lock *mutex.Lock) {
	t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	var handles []interface{ Close(context.Context) error }
	t.Cleanup(func() {
		stop()
		for _, h := range handles {
			_ = h.Close(context.Background())
		}
	})
	m := redistest.Must(mutex.New(rdb, mutex.Config{Name: "rights-jobs"}))(t)
	lock = redistest.Must(m.Lock(ctx, "nightly"))(t)
	go m.Lock(ctx, "nightly")
	guard := redistest.Must(mutex.NewGuard(rdb, mutex.GuardConfig{Name: "rights-jobs"}))(t)
	redistest.WantErr(t, guard.Set(ctx, "nightly", lock.Token(), "v", time.Minute))
	for _, total := range []int{0, 2} {
		s := redistest.Must(semaphore.New(rdb, semaphore.Config{Name: fmt.Sprint("rights-exports-", total), Limit: 1, Total: total}))(t)
		handles = append(handles, s)
		redistest.WantErr(t, s.SetLimit(ctx, "acme", 2))
		redistest.Must(s.AcquireN(ctx, "acme", 2))(t)
		go s.Acquire(ctx, "acme")
	}
	g := redistest.Must(singleflight.New(rdb, singleflight.Config[string]{Name: "rights-pages", TTL: time.Minute}))(t)
	handles = append(handles, m, g)
	redistest.Must(g.Do(ctx, "acme", func(context.Context) (string, error) { return "v", nil }))(t)
	for _, queue := range []string{"leasehold:mtx:{rights-jobs:nightly}:queue", "leasehold:sem:{rights-exports-0:acme}:queue", "leasehold:sem:{rights-exports-2}:queue"} {
		redistest.Eventually(t, "a waiter in "+queue, func() bool { return rdb.ZCard(ctx, queue).Val() == 1 })
	}
	return []string{"--mutex rights-jobs --key nightly", "--semaphore rights-exports-0 --key acme", "--semaphore rights-exports-2", "--semaphore rights-exports-2 --key acme", "--cache rights-pages --key acme", "--guard rights-jobs --key nightly"}, lock
}

// read lists, shows and inspects as a user, and reads an audit stream. It returns what failed.
func read(t *testing.T, rdb redis.UniversalClient, url string, families []string) error {
	t.Helper()
	out, err := do(t, url, "ls", "--all", "rights-")
	if err == nil && (strings.Count(out, "\n") < 6 || strings.Contains(out, "?")) {
		err = fmt.Errorf("ls says\n%s", out)
	}
	all := []error{err}
	for _, family := range families {
		if out, err := do(t, url, append([]string{"show"}, strings.Fields(family)...)...); err != nil {
			all = append(all, fmt.Errorf("show %s: %w\n%s", family, err, out))
		}
	}
	m := redistest.Must(mutex.New(rdb, mutex.Config{Name: "rights-jobs"}))(t)
	_, err = m.Inspect(t.Context(), "nightly")
	all = append(all, err, m.Close(t.Context()))
	s := redistest.Must(semaphore.New(rdb, semaphore.Config{Name: "rights-exports-2", Limit: 1, Total: 2}))(t)
	_, err = s.Inspect(t.Context(), "acme")
	all = append(all, err, s.Close(t.Context()))
	all = append(all, rdb.XRange(t.Context(), "leasehold:mtx:{rights-jobs:nightly}:audit", "-", "+").Err())
	return errors.Join(all...)
}
