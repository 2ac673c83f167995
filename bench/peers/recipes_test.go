package peers

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/bsm/redislock"
	"github.com/go-redsync/redsync/v4"
	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/redistest"
)

func TestMain(m *testing.M) {
	redistest.UseServers()
	redistest.Main(m)
}

type library struct {
	name string
	as   string // how it is used: what its documentation offers
	open func(t *testing.T, rdb *redis.Client, ttl time.Duration) locker
}

var libraries = []library{
	{"redislock 0.9.4", "`LinearBackoff(100ms)`, bounded by ctx", func(_ *testing.T, rdb *redis.Client, ttl time.Duration) locker {
		return openRedislock(rdb, ttl, 100*time.Millisecond)
	}},
	{"redsync 4.18.1", "`WithExpiry(ttl)`, 32 tries 50 to 250 ms apart (its default)", func(_ *testing.T, rdb *redis.Client, ttl time.Duration) locker {
		return openRedsync(rdb, redsync.WithExpiry(ttl))
	}},
	{"leasehold mutex", "`Config{TTL: ttl}`", func(t *testing.T, rdb *redis.Client, ttl time.Duration) locker {
		return openMutex(t, rdb, ttl)
	}},
}

// redsyncNX is redsync with an option that its documentation offers for servers
// that restart often. It matters to Extend only.
var redsyncNX = library{"redsync 4.18.1, `WithSetNXOnExtend`", "as above, with that option", func(_ *testing.T, rdb *redis.Client, ttl time.Duration) locker {
	return openRedsync(rdb, redsync.WithExpiry(ttl), redsync.WithSetNXOnExtend())
}}

// busy: the lock is somebody else's, as each of them says that.
func busy(err error) bool {
	var taken *redsync.ErrTaken
	return errors.Is(err, redislock.ErrNotObtained) || errors.As(err, &taken) || errors.Is(err, redsync.ErrFailed) ||
		errors.Is(err, leasehold.ErrBusy)
}

type report struct{ rows []string }

var keyInAnError = regexp.MustCompile(`peers/[a-z0-9-]+`)

// add adds what a library made of the trial, and fails the test where leasehold was wrong.
func (c *trial) add(right bool, what string, args ...any) {
	verdict := map[bool]string{true: "right", false: "**wrong**"}[right]
	text := keyInAnError.ReplaceAllString(fmt.Sprintf(what, args...), "peers/k")
	row := fmt.Sprintf("| %s | %s | %s | %s |", c.recipe, c.lib.name, verdict, text)
	c.rows = append(c.rows, row)
	redistest.Check(c, right || !strings.HasPrefix(c.lib.name, "leasehold"), "%s", row)
}

// trial is one recipe with one library: its locks go through the proxy, those of another process don't.
type trial struct {
	*testing.T
	*report
	recipe string
	lib    library
	proxy  *redistest.Proxy
	locker locker
	other  locker
	key    string
}

const ttl = 8 * time.Second

// TestRecipes prints what happened, and fails only where leasehold was wrong.
func TestRecipes(t *testing.T) {
	redistest.NeedServers(t)
	r := &report{}
	for _, recipe := range []struct {
		name string
		run  func(*trial)
		more []library
	}{
		{"1 the acquire's reply is lost", lostAcquireReply, nil},
		{"2 the release's reply is lost", lostReleaseReply, nil},
		{"5 cancelled in the call", cancelledMidCall, nil},
		{"7 extended after the end", extendedAfterTheEnd, []library{redsyncNX}},
		{"14 Redis answers with errors", redisErrs, nil},
		{"14 the same, to a waiter", redisErrsToAWaiter, nil},
	} {
		for _, lib := range append(libraries[:len(libraries):len(libraries)], recipe.more...) {
			t.Run(recipe.name+"/"+lib.name, func(t *testing.T) { recipe.run(newTrial(t, r, recipe.name, lib)) })
		}
	}
	table := "| recipe | library | verdict | what happened |\n|---|---|---|---|\n" + strings.Join(r.rows, "\n")
	var uses []string
	for _, lib := range libraries {
		uses = append(uses, lib.name+" with "+lib.as)
	}
	fmt.Printf("\n%s\n\nTTL %v; go-redis %s with its defaults. Used as: %s.\n\n", table, ttl, redis.Version(), strings.Join(uses, "; "))
}

func newTrial(t *testing.T, r *report, recipe string, lib library) *trial {
	t.Helper()
	server := redistest.Shared(t, redistest.Installed()[0])
	p := redistest.NewProxy(t, server.Addr())
	c := &trial{T: t, report: r, recipe: recipe, lib: lib, proxy: p, key: redistest.Name(t)}
	c.locker = lib.open(t, p.Client(), ttl)
	c.other = lib.open(t, server.Client(), ttl)
	// The scripts are known from here on.
	h, err := c.locker.try(context.Background(), c.key+"-warm")
	redistest.WantErr(t, err)
	redistest.WantErr(t, h.unlock())
	p.ResetCounts()
	return c
}

func seconds(d time.Duration) string { return fmt.Sprintf("%.2f s", d.Seconds()) }

// scripts are the commands by which they take and give back: SET NX, and scripts.
// Nothing else runs on a trial's proxy, so that the first is the one.
var scripts = redistest.Named("EVALSHA", "EVAL", "SET", "SETNX")

// untilFree is how long another process has to wait for the lock.
func (c *trial) untilFree() (time.Duration, bool) {
	began := time.Now()
	for time.Since(began) < 3*ttl {
		h, err := c.other.try(context.Background(), c.key)
		if err == nil {
			_ = h.unlock()
			return time.Since(began), true
		}
		if !busy(err) {
			c.Fatal(err)
		}
		time.Sleep(10 * time.Millisecond)
	}
	return 3 * ttl, false
}

func lostAcquireReply(c *trial) {
	fault := c.proxy.EatReply(scripts, 1)
	began := time.Now()
	ctx, cancel := context.WithTimeout(context.Background(), 3*ttl)
	defer cancel()
	h, err := c.locker.lock(ctx, c.key)
	took := time.Since(began)
	fault.Wait()
	if err != nil {
		stuck, _ := c.untilFree()
		c.add(false, "failed after %s (%v); the lock was taken for %s more", seconds(took), err, seconds(stuck))
		return
	}
	_, err = c.other.try(context.Background(), c.key)
	if !busy(err) {
		c.add(false, "locked after %s, and another process could lock it too: %v", seconds(took), err)
		return
	}
	unlocked := h.unlock()
	c.add(unlocked == nil, "locked after %s (%d commands), unlock: %v", seconds(took), c.commands(), orFine(unlocked))
}

func orFine(err error) string {
	if err == nil {
		return "fine"
	}
	return fmt.Sprintf("“%v”", err)
}

// commands is how many commands went out, hello and the like aside.
func (c *trial) commands() (n int) {
	for name, k := range c.proxy.Commands() {
		switch name {
		case "HELLO", "CLIENT", "SUBSCRIBE", "UNSUBSCRIBE", "PING":
		default:
			n += k
		}
	}
	return n
}

func lostReleaseReply(c *trial) {
	h := redistest.Must(c.locker.lock(context.Background(), c.key))(c)
	fault := c.proxy.EatReply(scripts, 1)
	err := h.unlock()
	fault.Wait()
	stuck, free := c.untilFree()
	c.add(err == nil && free, "unlock said: %s; it was free after %s", orFine(err), seconds(stuck))
}

// cancelledMidCall: the server has run the command, the reply is under way, and the caller cancels.
func cancelledMidCall(c *trial) {
	fault := c.proxy.HoldReply(scripts, 1)
	defer fault.Release()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	type result struct {
		h   held
		err error
	}
	done := make(chan result, 1)
	go func() {
		h, err := c.locker.lock(ctx, c.key)
		done <- result{h, err}
	}()
	fault.Wait()
	cancelled := time.Now()
	cancel()
	r := <-done
	back := time.Since(cancelled)
	if r.err == nil {
		c.add(true, "returned the lock %s after the cancellation", seconds(back))
		return
	}
	_, free := c.untilFree()
	stuck := time.Since(cancelled)
	c.add(free && stuck <= time.Second, "returned %s after the cancellation with “%v”; the lock was free %s after it", seconds(back), r.err, seconds(stuck))
}

// extendedAfterTheEnd: the lock has expired, another process had it and gave it
// back; then its former owner extends it.
func extendedAfterTheEnd(c *trial) {
	const short = 300 * time.Millisecond
	former := c.lib.open(c.T, c.proxy.Client(), short)
	h := redistest.Must(former.lock(context.Background(), c.key))(c)
	c.proxy.Cut(true, true) // a holder that doesn't hear
	time.Sleep(2 * short)
	next, err := c.other.try(context.Background(), c.key)
	redistest.WantErr(c, err)
	redistest.WantErr(c, next.unlock())
	c.proxy.Heal()
	holds, err := h.extend(ttl)
	stuck, _ := c.untilFree()
	c.add(!holds && stuck <= time.Second, "extend said: %s; another process could lock after %s", orFine(err), seconds(stuck))
}

// failing is a server that can be made to answer everything with an error.
func (c *trial) failing() (locker, func(string)) {
	mini := redistest.Mini(c.T)
	c.proxy.SetUpstream(mini.Addr())
	c.proxy.CloseAll()
	c.Cleanup(func() { mini.SetError("") })
	return c.lib.open(c.T, c.proxy.Client(), ttl), func(text string) { mini.SetError(text) }
}

const loading = "LOADING Redis is loading the dataset in memory"

// patience is how long a call may go on at most, and hurry is how many commands a second make a busy loop: each
// of them waits 50 ms or more between two tries, and go-redis repeats a command that was refused three times.
const (
	patience = 30 * time.Second
	hurry    = 100
)

func redisErrs(c *trial) {
	locker, fail := c.failing()
	fail(loading)
	c.proxy.ResetCounts()
	c.judgeFailing(time.Now(), func(ctx context.Context) error {
		_, err := locker.lock(ctx, c.key)
		return err
	}, fail, locker)
}

func redisErrsToAWaiter(c *trial) {
	locker, fail := c.failing()
	h := redistest.Must(locker.lock(context.Background(), c.key))(c)
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	done := make(chan error, 1)
	go func() {
		_, err := locker.lock(ctx, c.key)
		done <- err
	}()
	time.Sleep(300 * time.Millisecond) // until it waits
	fail(loading)
	c.proxy.ResetCounts()
	c.judgeFailing(time.Now(), func(context.Context) error { return <-done }, fail, locker)
	_ = h.unlock()
}

func (c *trial) judgeFailing(began time.Time, call func(context.Context) error, fail func(string), locker locker) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	err := call(ctx)
	took, sent := time.Since(began), c.commands()
	rate := float64(sent) / max(took.Seconds(), 1)
	ended := err != nil && (took < patience || !errors.Is(err, context.DeadlineExceeded))
	fail("")
	// What it held when the errors began may last until its TTL is over.
	var retry error
	for ends := time.Now().Add(2 * ttl); time.Now().Before(ends); time.Sleep(50 * time.Millisecond) {
		var after held
		if after, retry = locker.try(context.Background(), c.key); retry == nil {
			_ = after.unlock()
			break
		}
	}
	text, _, _ := strings.Cut(fmt.Sprint(err), "\n")
	c.add(ended && rate <= hurry && retry == nil, "ended after %s with “%s”; %d commands, %.0f a second; locked again afterwards: %s",
		seconds(took), text, sent, rate, orFine(retry))
}
