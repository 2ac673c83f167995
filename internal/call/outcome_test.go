package call

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync/atomic"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold/internal/redistest"
)

var errOpen = errors.New("the circuit is open")

// ways are the ways in which a call reaches the server.
var ways = map[string]func(c *Client, n int) []error{
	"alone": func(c *Client, n int) (errs []error) {
		for i := range n {
			_, err := c.Do(context.Background(), echoed(fmt.Sprint("way", i), i))
			errs = append(errs, err)
		}
		return errs
	},
	"together": func(c *Client, n int) []error {
		errs, calls := make([]error, n), make([]*Call, n)
		for i := range calls {
			calls[i] = echoed(fmt.Sprint("way", i), i)
			calls[i].Done = func(reply []int64, err error) {
				if errs[i] = err; err == nil && (len(reply) != 1 || reply[0] != int64(i)) {
					errs[i] = fmt.Errorf("the reply is %v", reply)
				}
			}
		}
		c.Send(context.Background(), calls)
		return errs
	},
}

// touch reads the arguments of commands, as their sending does.
func touch(cmds ...redis.Cmder) {
	for _, cmd := range cmds {
		_ = cmd.Args()
	}
}

// Hooks refuse, swallow and wrap. Without a reply there is no verdict, and an answer to another call of the pipeline is
// none to this one. go-redis's own documentation shows hooks that wrap errors.
func TestOutcomesOfHooks(t *testing.T) {
	wrap := func(err error) error {
		if err != nil {
			err = fmt.Errorf("traced: %w", err)
		}
		return err
	}
	unsent := func(err error) bool { return errors.Is(err, ErrNotSent) && Classify(err) == NotNow }
	for name, c := range map[string]struct {
		around redistest.Around
		want   func(err error) bool
	}{
		"stops": {
			func(context.Context, []redis.Cmder, func() error) error { return errOpen },
			func(err error) bool { return errors.Is(err, errOpen) && unsent(err) },
		},
		"returns a nil pointer": {
			func(context.Context, []redis.Cmder, func() error) error { return (*net.OpError)(nil) },
			func(err error) bool { return err.Error() != "" && unsent(err) },
		},
		"swallows the call": {func(context.Context, []redis.Cmder, func() error) error { return nil }, unsent},
		"swallows the error": {func(_ context.Context, cmds []redis.Cmder, _ func() error) error {
			touch(cmds...)
			return nil
		}, func(err error) bool { return err != nil && !errors.Is(err, ErrNotSent) && Classify(err) == Unknown }},
		"has an answer to another call": {func(_ context.Context, cmds []redis.Cmder, _ func() error) error {
			if len(cmds) == 1 {
				return io.EOF
			}
			touch(cmds...)
			return redis.ErrCrossSlot
		}, func(err error) bool { return err != nil && Classify(err) != Refused }},
		"wraps": {func(_ context.Context, cmds []redis.Cmder, send func() error) error {
			err := wrap(send())
			for _, cmd := range cmds {
				cmd.SetErr(wrap(cmd.Err()))
			}
			return err
		}, func(err error) bool { return err == nil }}, // from a server that has no scripts yet
	} {
		for by, way := range ways {
			t.Run(name+", "+by, func(t *testing.T) {
				rdb := redistest.MiniClient(t)
				client := newReady(t, rdb)
				rdb.AddHook(ours(c.around))
				for _, err := range way(client, 5) {
					redistest.Check(t, c.want(err), "%v, class %v", err, Classify(err))
				}
			})
		}
	}
}

// The error that a hook returned to a read may panic when somebody looks at its text.
func TestReadOfAnErrorThatPanics(t *testing.T) {
	rdb := redistest.MiniClient(t)
	client := newReady(t, rdb)
	rdb.AddHook(redistest.Around(func(context.Context, []redis.Cmder, func() error) error { return struct{ error }{} }))
	_, err := client.read(t.Context(), "k")
	redistest.WantText(t, err, "panicked")
}

// serverSays is an error that a server answered with.
type serverSays string

func (e serverSays) Error() string { return string(e) }
func (serverSays) RedisError()     {}

func TestClasses(t *testing.T) {
	dial := &net.OpError{Op: "dial", Err: errors.New("refused")}
	for _, c := range []struct {
		err  error
		want ErrorClass
	}{
		{serverSays("NOSCRIPT No matching script."), NotNow},
		{serverSays("MOVED 1 127.0.0.1:1"), NotNow},
		{serverSays("READONLY You can't write against a read only replica."), NotNow},
		{serverSays("LOADING Redis is loading the dataset in memory"), NotNow},
		{serverSays("MISCONF Redis is configured to save RDB snapshots"), NotNow},
		{serverSays("ERR max number of clients reached"), NotNow},
		{serverSays("ERR max number of clients + cluster connections reached"), NotNow},
		{serverSays("OOM command not allowed"), Refused},
		{serverSays("WRONGTYPE Operation"), Refused},
		{serverSays("WRONGPASS invalid"), NotNow},
		{serverSays("NOAUTH Authentication required."), NotNow},
		{serverSays("ERR Protocol error: unauthenticated multibulk length"), NotNow},
		{serverSays("NOPERM this user has no permissions"), NotNow},
		{NotSent(serverSays("WRONGPASS invalid")), NotNow},
		{redis.ErrClosed, Refused},
		{NotSent(redis.ErrClosed), Refused},
		{dial, NotNow},
		{ErrSilent, NotNow},
		{NotSent(context.Canceled), NotNow},
		{redis.ErrPoolTimeout, NotNow},
		{io.EOF, Unknown},
		{context.DeadlineExceeded, Unknown},
		{errNoReply, Unknown},
	} {
		for _, err := range []error{c.err, fmt.Errorf("hook: %w", c.err)} {
			redistest.Expect(t, Classify(err), c.want, "%v is of class %v", err)
		}
	}
}

func TestClosedClientIsToldApart(t *testing.T) {
	for name, way := range ways {
		t.Run(name, func(t *testing.T) {
			rdb := redistest.MiniClient(t)
			c := newReady(t, rdb)
			_ = rdb.Close()
			for _, err := range way(c, 3) {
				redistest.Check(t, ClientClosed(err) && Classify(err) == Refused, "%v, class %v; want that the client is closed", err, Classify(err))
			}
		})
	}
}

// forgets makes a server forget its scripts right after it was taught one.
func TestScriptsForgottenWhileTheyAreTaught(t *testing.T) {
	mini := redistest.Mini(t)
	rdb, other := redis.NewClient(&redis.Options{Addr: mini.Addr()}), redis.NewClient(&redis.Options{Addr: mini.Addr()})
	t.Cleanup(func() { _, _ = other.Close(), rdb.Close() })
	c := newReady(t, rdb)
	times := 3
	rdb.AddHook(ours(func(ctx context.Context, cmds []redis.Cmder, send func() error) error {
		err := send()
		if times > 0 && cmds[0].Name() == "eval" {
			times--
			other.ScriptFlush(ctx)
		}
		return err
	}))
	for i, err := range ways["together"](c, 6) {
		redistest.Check(t, err == nil, "call %d: %v", i, err)
	}
}

// deaf is a connection that ends, or hangs, without a reply once a script of a test was written to it.
type deaf struct {
	net.Conn
	written *atomic.Int64 // such scripts
	hangs   bool
}

func (c deaf) Write(data []byte) (int, error) {
	scripts := bytes.Count(data, []byte(echo.sha))
	c.written.Add(int64(scripts))
	if scripts > 0 && c.hangs {
		return len(data), nil
	}
	n, err := c.Conn.Write(data)
	if scripts > 0 {
		_ = c.Close()
	}
	return n, err
}

// A stray copy could run after the caller settled with the outcome, so the client
// library's own retries are off for scripts.
func TestScriptWhoseReplyIsLostIsSentOnce(t *testing.T) {
	for name, way := range ways {
		t.Run(name, func(t *testing.T) {
			addr := redistest.Mini(t).Addr()
			plain := redis.NewClient(&redis.Options{Addr: addr})
			t.Cleanup(func() { _ = plain.Close() })
			way(newReady(t, plain), 1) // the server knows the script from here on
			var written atomic.Int64
			rdb := redis.NewClient(&redis.Options{Addr: addr, MaxRetries: 3, Dialer: func(ctx context.Context, network, addr string) (net.Conn, error) {
				conn, err := new(net.Dialer).DialContext(ctx, network, addr)
				return deaf{conn, &written, false}, err
			}})
			t.Cleanup(func() { _ = rdb.Close() })
			const calls = 5
			for _, err := range way(newReady(t, rdb), calls) {
				redistest.Check(t, Classify(err) == Unknown, "%v, class %v; want an error that is unknown", err, Classify(err))
			}
			n := written.Load()
			redistest.Check(t, n == calls, "%d scripts were written for %d calls", n, calls)
		})
	}
}
