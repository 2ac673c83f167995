package call

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold/internal/redistest"
)

// hidden embeds a client in a field that is not exported, so that nothing tells what it is; unwraps is one that tells.
type (
	inside  interface{ redis.UniversalClient }
	hidden  struct{ inside }
	unwraps struct{ hidden }
)

func (u unwraps) Unwrap() redis.UniversalClient { return u.inside }

func TestClientsThatCannotWorkAreRefused(t *testing.T) {
	for _, rdb := range []redis.UniversalClient{
		nil,
		(*redis.Client)(nil),
		(*redis.ClusterClient)(nil),
		(*redis.Ring)(nil),
		struct{ redis.UniversalClient }{},
		struct{ *redis.ClusterClient }{},
		struct{ redis.UniversalClient }{(*redis.Client)(nil)},
		&struct{ redis.UniversalClient }{struct{ *redis.Client }{}},
		unwraps{},
		ring(t),
		struct{ *redis.Ring }{ring(t)},
		struct{ redis.UniversalClient }{ring(t)},
	} {
		c, err := NewClient(rdb)
		redistest.Check(t, err != nil && strings.Contains(err.Error(), "rdb is") && strings.Contains(err.Error(), "want a"),
			"%T: %v, %v; want an error that says what to pass", rdb, c, err)
	}
}

// unsubscribed is a client that makes no subscription.
type unsubscribed struct{ redis.UniversalClient }

func (unsubscribed) Subscribe(context.Context, ...string) *redis.PubSub { return nil }

func TestNoSubscriptionIsNil(t *testing.T) {
	c := redistest.Must(NewClient(unsubscribed{redistest.MiniClient(t)}))(t)
	redistest.Expect(t, c.Subscribe(t.Context(), "box") == nil, true, "it is nil: %t")
}

func TestWrappedClientsAreRecognised(t *testing.T) {
	cluster := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{"127.0.0.1:1"}, RouteRandomly: true})
	plain := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", ClientSideCacheConfig: &redis.ClientSideCacheConfig{}})
	defer func() { _, _ = cluster.Close(), plain.Close() }()
	around := func(rdb redis.UniversalClient) []redis.UniversalClient {
		layer := struct{ redis.UniversalClient }{rdb}
		return []redis.UniversalClient{rdb, layer, &layer, struct{ redis.UniversalClient }{&layer}, unwraps{hidden{rdb}}}
	}
	for _, rdb := range append(around(cluster), struct{ *redis.ClusterClient }{cluster}) {
		c, err := NewClient(rdb)
		redistest.Check(t, err == nil && c.IsCluster() && c.ReadsFromReplicas() && !c.CachesLocally(),
			"%T: %+v, %v; want a Cluster client that reads from replicas", rdb, c, err)
	}
	for _, rdb := range append(around(plain), struct{ *redis.Client }{plain}) {
		c, err := NewClient(rdb)
		redistest.Check(t, err == nil && !c.IsCluster() && !c.ReadsFromReplicas() && c.CachesLocally() && c.boundsReads,
			"%T: %+v, %v; want a client that caches", rdb, c, err)
	}
	c, err := NewClient(hidden{plain})
	redistest.Check(t, err == nil && !c.boundsReads, "a hidden client: %+v, %v; want one of which nothing is known", c, err)
}

func TestHiddenClusterClientIsRefusedByTheFirstCall(t *testing.T) {
	redistest.NeedServers(t)
	for _, v := range redistest.Installed() {
		rdb := redistest.SharedCluster(t, v).Client()
		c, err := NewClient(hidden{rdb})
		redistest.WantErr(t, err)
		_, err = c.Do(t.Context(), echoed("any", 1))
		redistest.Check(t, err != nil && Classify(err) == Refused && strings.Contains(err.Error(), "Unwrap"),
			"%v: %v; want an error that says what to pass", v, err)
		single := hidden{redistest.Shared(t, v).Client()}
		if c, err = NewClient(single); err != nil {
			t.Fatal(err)
		}
		reply, err := c.Do(t.Context(), echoed("any", 1))
		wantEcho(t, 1, reply, err)
	}
}

func TestOldServerIsRefusedByTheFirstCallOfAnyKind(t *testing.T) {
	for name, old := range map[string]func(cmd redis.Cmder) (handled bool){
		"which runs the script": func(cmd redis.Cmder) bool {
			if !isOurs(cmd) {
				return false
			}
			cmd.(*anythingCommand).SetVal([]any{int64(1e9), int64(0), "6.2.14"})
			return true
		},
		"which refuses the script": func(cmd redis.Cmder) bool {
			switch cmd := cmd.(type) {
			case *redis.StringCmd:
				cmd.SetVal("# Server\r\nredis_version:6.2.14\r\nredis_mode:standalone\r\n")
			default:
				cmd.SetErr(serverSays("ERR Wrong number of args calling Redis command From Lua script"))
			}
			return true
		},
	} {
		t.Run(name, func(t *testing.T) {
			rdb := redistest.MiniClient(t)
			var sent atomic.Int32
			rdb.AddHook(redistest.Around(func(_ context.Context, cmds []redis.Cmder, send func() error) error {
				if isOurs(cmds[0]) {
					sent.Add(1)
				}
				if old(cmds[0]) {
					return cmds[0].Err()
				}
				return send()
			}))
			c, _ := NewClient(rdb)
			calls := map[string]func() error{
				"Time": func() error { _, err := c.Time(t.Context(), "k"); return err },
				"Do":   func() error { _, err := c.Do(t.Context(), echoed("k", 1)); return err },
				"Send": func() (err error) {
					one := echoed("k", 1)
					one.Done = func(_ []int64, e error) { err = e }
					c.Send(t.Context(), []*Call{one})
					return err
				},
				"Seat": func() error { _, err := NewBatch(1)[0].Do(t.Context(), c, echoed("k", 1)); return err },
			}
			for name, call := range calls {
				before := sent.Load()
				err := call()
				redistest.Check(t, err != nil && Classify(err) == Refused && strings.Contains(err.Error(), "Redis 6.2.14; want Redis 7.0"),
					"%s: %v; want the version that is needed", name, err)
				redistest.Expect(t, sent.Load()-before, 1, "%s sent %d scripts; want the question only", name)
			}
		})
	}
}

func TestFirstCallsShareOneQuestion(t *testing.T) {
	rdb := redistest.MiniClient(t)
	var asked atomic.Int32
	gate, began := make(chan struct{}), make(chan struct{}, 1)
	rdb.AddHook(ours(func(_ context.Context, cmds []redis.Cmder, send func() error) error {
		if ScriptName(fmt.Sprint(cmds[0].Args()[1])) == "time" {
			asked.Add(1)
			began <- struct{}{}
			<-gate
		}
		return send()
	}))
	c, _ := NewClient(rdb)
	const callers = 200
	errs := make(chan error, callers)
	for i := range callers {
		go func() {
			_, err := c.Do(t.Context(), echoed("k", i))
			errs <- err
		}()
	}
	<-began
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := c.Do(ctx, echoed("left", 1))
	redistest.Check(t, errors.Is(err, context.Canceled) && errors.Is(err, ErrNotSent), "a caller that left: %v; want its ctx's error, unsent", err)
	close(gate)
	for range callers {
		redistest.NoError(t, <-errs)
	}
	redistest.AtMost(t, asked.Load(), 2, "%d questions for the time")
	_, err = c.Do(t.Context(), echoed("k", 1))
	redistest.Check(t, err == nil && asked.Load() <= 2, "a later call: %v; want no question", err)
}

// hangingDialer dials with usual until hang is called. From then on its dials hang until
// their ctx ends, as they do on a network that drops packets.
type hangingDialer struct {
	usual func(ctx context.Context, network, addr string) (net.Conn, error)
	hangs bool
	conns []net.Conn
}

// hang ends the connections that there are. It is called while nobody dials.
func (d *hangingDialer) hang() {
	d.hangs = true
	for _, conn := range d.conns {
		_ = conn.Close()
	}
}

func (d *hangingDialer) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	if !d.hangs {
		conn, err := d.usual(ctx, network, addr)
		if err == nil {
			d.conns = append(d.conns, conn)
		}
		return conn, err
	}
	<-ctx.Done()
	return nil, &net.OpError{Op: "dial", Net: network, Err: ctx.Err()}
}

// letDialsEnd waits until go-redis has given up its own dials, which outlive the calls that
// they were for. It is called in a bubble.
func letDialsEnd() { time.Sleep(time.Minute) }

func TestCallsAreBoundedWhereDiallingHangs(t *testing.T) {
	for _, warm := range []bool{true, false} {
		for name, way := range ways {
			t.Run(fmt.Sprintf("%s, warm %v", name, warm), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					var hole hangingDialer
					_, client := redistest.Bubble(t)
					rdb := client(func(o *redis.Options) { hole.usual, o.Dialer = o.Dialer, hole.dial })
					c, _ := NewClient(rdb)
					if warm {
						redistest.WantErr(t, redistest.ErrorOf(c.Time(t.Context(), "k")))
					}
					synctest.Wait()
					hole.hang()
					began := time.Now()
					for _, err := range way(c, 1) {
						redistest.Check(t, err != nil && errors.Is(err, ErrNotSent) && Classify(err) == NotNow && !errors.Is(err, context.DeadlineExceeded),
							"%v, class %v; want that it was not sent", err, Classify(err))
					}
					took := time.Since(began)
					redistest.Check(t, took <= Bound+Bound/3, "took %v; want %v", took, Bound)
					letDialsEnd()
				})
			})
		}
	}
}

// ring is a client that is refused, and closed at the end of the test.
func ring(t *testing.T) *redis.Ring {
	r := redis.NewRing(&redis.RingOptions{})
	t.Cleanup(func() { _ = r.Close() })
	return r
}

// A hook that reads the arguments of commands is added after the first calls. Only the calls until that is learned
// count as sent twice. A hook that really sends a call twice is noticed before and after.
func TestHookThatIsAddedLateIsLearned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rdb, c := newBubble(t)
		n, twice := 0, false
		send := func() bool {
			one := echoed("k", n)
			reply, err := c.Do(t.Context(), one)
			redistest.CheckNow(t, err == nil, "%v, %v", reply, err)
			n++
			return one.Copied()
		}
		for range 4 {
			redistest.Check(t, !send(), "a call without a hook counts as sent twice")
		}
		rdb.AddHook(ours(func(_ context.Context, cmds []redis.Cmder, send func() error) error {
			touch(cmds...)
			if twice {
				_ = send()
			}
			return send()
		}))
		for range maxExceeded + 2 {
			send()
		}
		redistest.Check(t, !send(), "a hook that reads arguments was not learned")
		twice = true
		redistest.Check(t, send(), "a call that the hook sent twice was not noticed")
	})
}

// One that only reads the first command of each pipeline is learned, too, beside commands that it does not read.
func TestHookOfPipelinesThatIsAddedLateIsLearned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rdb, c := newBubble(t)
		send := func() (copied bool) {
			calls := []*Call{echoed("k", 1), echoed("k", 2)}
			c.Send(t.Context(), calls)
			return calls[0].Copied() || calls[1].Copied()
		}
		send()
		redistest.Check(t, !send(), "a call without a hook counts as sent twice")
		rdb.AddHook(redistest.Apart{Around: sends, Together: ours(func(_ context.Context, cmds []redis.Cmder, send func() error) error {
			touch(cmds[0])
			return send()
		})})
		for range maxExceeded + 2 {
			send()
		}
		redistest.Check(t, !send(), "a hook that reads the first arguments was not learned")
	})
}

// A hook that sends a pipeline again is noticed, also in the first one, from which nothing is known yet: after it broke,
// and after another command of it failed.
func TestHookThatSendsTheFirstPipelineAgain(t *testing.T) {
	for _, breaks := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			rdb, c := newBubble(t)
			redistest.Must(c.Do(t.Context(), echoed("k", 0)))(t) // the server knows the script
			again := true
			rdb.AddHook(redistest.Apart{Around: sends, Together: ours(func(_ context.Context, cmds []redis.Cmder, send func() error) error {
				switch {
				case again && breaks: // as the client does
					touch(cmds...)
					for _, cmd := range cmds {
						cmd.SetErr(io.ErrUnexpectedEOF)
					}
				case again:
					_ = send()
				}
				return send()
			})})
			for range 2 {
				calls := []*Call{echoed("k", 1), echoed("k", 2)}
				c.Send(t.Context(), calls)
				redistest.Check(t, calls[0].Copied() == again && calls[1].Copied() == again,
					"breaks: %v; again: %v; counted as sent twice: %v, %v", breaks, again, calls[0].Copied(), calls[1].Copied())
				again = false
			}
		})
	}
}

// A ctx with a Deadline that panics ends no process, also where the client bounds no read: the call then runs on another goroutine.
func TestCtxThatPanicsInTheBackground(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, read := range []time.Duration{0, -1} {
			_, c := newBubble(t, func(o *redis.Options) { o.ReadTimeout = read })
			var active sync.WaitGroup
			one := echoed("k", 1)
			one.Done = func(reply []int64, err error) { wantEcho(t, 1, reply, err) }
			c.Start(panicsOnDeadline{t.Context()}, &active, one)
			active.Wait()
		}
	})
}

type panicsOnDeadline struct{ context.Context }

func (panicsOnDeadline) Deadline() (time.Time, bool) { panic("Deadline") }
