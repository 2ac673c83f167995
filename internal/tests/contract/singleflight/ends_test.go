package singleflight

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/internal/tests/harness"
	"github.com/leasehold-go/leasehold/singleflight"
)

// over reports whether a load's ctx has ended.
func (l *loading) over() bool { return l.ctx.Err() != nil }

// freed reports whether nobody has the lease to load key.
func (f *fixture) freed(key string) bool {
	return f.RDB.ZCard(context.Background(), f.Part(key, "holders")).Val() == 0
}

type ctxKey struct{}

// A load's ctx has the first caller's values, and neither its deadline nor its end. Where nobody waits any more, the
// load ends at once, and its lease is free; where the last one leaves another process, within a third of the lease.
func TestLoadEndsWithItsLastWaiter(t *testing.T) {
	bubble(t, func(f *fixture) {
		g, other, _ := f.two()
		o := newOrigin(f)
		ctx, cancel := context.WithTimeout(context.WithValue(f.Context(), ctxKey{}, "first"), time.Minute)
		defer cancel()
		here, leaveHere := context.WithCancel(context.WithValue(f.Context(), ctxKey{}, "second"))
		first, l := begin(f, ctx, g, "k", o, o.obedient)
		second := fetch(f, here, g, "k", never(f))
		_, bounded := l.ctx.Deadline()
		redistest.Check(f, !bounded && l.ctx.Value(ctxKey{}) == "first", "deadline %v, value %v", bounded, l.ctx.Value(ctxKey{}))
		cancel()
		first.Failed()
		time.Sleep(time.Minute)
		redistest.Check(f, !l.over(), "the load ended with its caller: %v", context.Cause(l.ctx))
		leaveHere()
		second.Failed()
		synctest.Wait()
		redistest.CheckNow(f, l.over() && f.freed("k"), "the load goes on: ctx ended %v, lease freed %v", l.over(), f.freed("k"))
		cause := context.Cause(l.ctx)
		redistest.Check(f, !errors.Is(cause, leasehold.ErrLost) && !errors.Is(cause, leasehold.ErrClosed), "ended with %v", cause)

		ctx, cancel = context.WithCancel(f.Context())
		defer cancel()
		there, leave := context.WithCancel(f.Context())
		defer leave()
		_, l = begin(f, ctx, g, "k", o, o.obedient)
		fetch(f, there, other, "k", never(f))
		cancel()
		time.Sleep(20 * time.Second)
		redistest.CheckNow(f, !l.over(), "the load ended before its last waiter")
		leave()
		time.Sleep(10 * time.Second / 3) // of a LeaseTTL of 10 s
		synctest.Wait()
		redistest.CheckNow(f, l.over() && f.freed("k"), "a third of the lease later: ctx ended %v, lease freed %v", l.over(), f.freed("k"))
		wantIdle(f, g, "k") // what we ended is nobody's failure
		last, l := begin(f, f.Context(), other, "k", o, o.load)
		l.returns("v")
		last.want("v", singleflight.Loaded)
		redistest.Check(f, l.over(), "the load's ctx goes on after the load")
	})
}

// A caller that comes after the last caller has left, and before Redis was asked whether
// anybody waits elsewhere, keeps the load alive; a caller that comes after that starts one of
// its own, and what the ended one comes to is neither shared nor stored.
func TestNewcomerToALoadThatEndsLoadsAnew(t *testing.T) {
	bubble(t, func(f *fixture) {
		g, wire := f.open(func(c *singleflight.Config[string]) { c.ErrorTTL = time.Minute })
		for _, asked := range []bool{false, true} {
			o := newOrigin(f)
			ctx, cancel := context.WithCancel(f.Context())
			first, l := begin(f, ctx, g, "k", o, o.load)
			if asked {
				wire.StallReplies("load renew")
			} else {
				wire.Stall("load renew")
			}
			cancel()
			first.Failed()
			synctest.Wait()
			newcomer := fetch(f, f.Context(), g, "k", gives("own"))
			redistest.CheckNow(f, !l.over() && f.freed("k") == asked, "asked %v: the lease is freed: %v", asked, f.freed("k"))
			if !asked {
				wire.Heal()
				time.Sleep(time.Minute)
				l.returns("shared")
				newcomer.want("shared", singleflight.Shared)
			} else {
				l.fails(errBoom)
				newcomer.want("own", singleflight.Loaded)
				wire.Heal()
				synctest.Wait()
				s := inspect(f, g, "k")
				redistest.Check(f, s.Failure == "" && s.Cached, "%+v", s)
			}
			redistest.WantErr(f, g.Invalidate(f.Context(), "k"))
		}
	})
}

// A caller that leaves while its flight ends without a result for it has nothing
// loaded: nobody would wait for that load.
func TestCallerThatLeavesWhileItsFlightEndsLoadsNothing(t *testing.T) {
	bubble(t, func(f *fixture) {
		g, other, wire := f.two()
		first, l, o := f.loading(g, "k")
		redistest.WantErr(f, other.Invalidate(f.Context(), "k"))
		ctx, cancel := context.WithCancel(f.Context())
		late := fetch(f, ctx, g, "k", o.obedient) // it must not have the result of that load
		synctest.Wait()
		wire.Stall("load publish")
		l.returns("v")
		cancel()
		redistest.WantErr(f, late.Failed(), context.Canceled)
		wire.Heal()
		first.want("v", singleflight.Loaded)
		synctest.Wait()
		redistest.Expect(f, o.loads.Load(), 1, "%d loads")
	})
}

// A caller that joins a refresh that turns out not to be this process's waits for the other,
// although the refresh would not have.
func TestJoiningARefreshThatIsNotGranted(t *testing.T) {
	bubble(t, func(f *fixture) {
		g, other, wire := f.two(staleFor)
		f.stalled(g, "k")
		o := newOrigin(f)
		fetch(f, f.Context(), other, "k", o.load).want("old", singleflight.Stale)
		l := o.next(f)
		wire.Stall("load enter")
		fetch(f, f.Context(), g, "k", never(f)).want("old", singleflight.Stale) // its refresh is under way
		f.RDB.Del(f.Context(), f.Part("k", "value"))                            // so that there is nothing to be served
		joins := fetch(f, f.Context(), g, "k", never(f))
		wire.Heal()
		synctest.Wait()
		redistest.CheckNow(f, !joins.Ended(), "%+v, %v", joins.Value, joins.Err)
		l.returns("new")
		joins.want("new", singleflight.Shared)
	})
}

// Over a long way a publication has longer: it may need a new connection, behind those of a crowd.
func TestPublicationOverALongWay(t *testing.T) {
	bubble(t, func(f *fixture) {
		var trip atomic.Int64
		trip.Store(int64(300 * time.Millisecond))
		rdb := f.Connect(&harness.Wire{})
		rdb.AddHook(redistest.Around(func(_ context.Context, _ []redis.Cmder, send func() error) error {
			time.Sleep(time.Duration(trip.Load()))
			return send()
		}))
		g := openOn[string](f, rdb)
		first, l, _ := f.loading(g, "k")
		joins := fetch(f, f.Context(), g, "k", never(f))
		time.Sleep(time.Second)
		trip.Store(int64(900 * time.Millisecond)) // twice that: the server does not know the script
		l.returns("v")
		first.want("v", singleflight.Loaded)
		joins.want("v", singleflight.Shared)
		trip.Store(0)
	})
}

// A caller that is served a stale value at that moment still has the value rebuilt.
func TestCallerThatIsServedWhileItsFlightEndsHasTheValueRebuilt(t *testing.T) {
	bubble(t, func(f *fixture) {
		mod := func(c *singleflight.Config[string]) {
			c.TTL, c.StaleFor, c.SoftTimeout = time.Second, time.Hour, 200*time.Millisecond
		}
		g, wire := f.open(mod)
		fetch(f, f.Context(), g, "k", gives("old")).Got()
		time.Sleep(2 * time.Second)
		first, l, o := f.loading(g, "k")
		synctest.Wait()
		late := fetch(f, f.Context(), g, "k", o.load)
		wire.Stall("load publish")
		f.RDB.Del(f.Context(), f.Part("k", "holders")) // the lease is lost
		l.returns("lost")
		first.want("old", singleflight.Stale)
		late.want("old", singleflight.Stale)
		wire.Heal()
		o.next(f).returns("new")
		synctest.Wait()
		fetch(f, f.Context(), g, "k", never(f)).want("new", singleflight.Cached)
	})
}

// refusal is an error of the server that stays.
type refusal struct{}

func (refusal) Error() string { return "ERR not this one" }
func (refusal) RedisError()   {}

// If the result of a load cannot be published, stored or not, nobody is held up: a waiter elsewhere loads by itself.
func TestRefusedPublicationHoldsNobodyUp(t *testing.T) {
	for what, refused := range map[string]error{"by the server": refusal{}, "on the way": errors.New("ERR not today")} {
		subBubble(t, what, func(f *fixture) {
			g, other, w := f.two()
			first, l, _ := f.loading(g, "k")
			second := fetch(f, f.Context(), other, "k", gives("theirs"))
			w.FailWith(refused, "load publish")
			began := time.Now()
			l.returns("ours")
			first.wantValue("ours")
			second.want("theirs", singleflight.Loaded)
			redistest.AtMost(f, time.Since(began), time.Second, "the second caller waited for %v")
		})
	}
}

// lease makes the lease last that long.
func lease(d time.Duration) config { return func(c *singleflight.Config[string]) { c.LeaseTTL = d } }

// If a load loses its lease, its ctx ends with ErrLost. Where the loader returns a value all the same, its first
// caller gets that, the others ask again, and it isn't stored.
func TestValueAfterALostLeaseIsNotStored(t *testing.T) {
	bubble(t, func(f *fixture) {
		g, other, _ := f.two()
		first, l, o := f.loading(g, "k")
		joins, waits := fetch(f, f.Context(), g, "k", o.load), fetch(f, f.Context(), other, "k", o.load)
		f.Server.FlushAll()
		time.Sleep(4 * time.Second) // of a LeaseTTL of 10 s
		redistest.WantErr(f, context.Cause(l.ctx), leasehold.ErrLost)
		newer := o.next(f) // of the other process, that was told so
		l.returns("old")
		first.want("old", singleflight.Loaded)
		synctest.Wait()
		redistest.CheckNow(f, !joins.Ended(), "the caller that joined has %+v, %v", joins.Value, joins.Err)
		s := inspect(f, g, "k")
		redistest.Check(f, !s.Cached && s.Loading, "%+v", s)
		newer.returns("new")
		a, b := joins.Got(), waits.Got()
		redistest.Check(f, a.Value == "new" && b.Value == "new", "%+v, %+v", a, b)
		wantStored(f, g, "k", "new")
	})
}

// LoadTimeout bounds a load also where its lease was lost before: a loader that
// ignores its ctx can't hold its callers for longer.
func TestLoadTimeoutAfterALostLease(t *testing.T) {
	bubble(t, func(f *fixture) {
		g, _ := f.open(func(c *singleflight.Config[string]) { c.LeaseTTL, c.LoadTimeout = time.Second, 5*time.Second })
		first, l, o := f.loading(g, "k")
		f.Server.FlushAll()
		time.Sleep(time.Second)
		redistest.WantErr(f, context.Cause(l.ctx), leasehold.ErrLost)
		time.Sleep(4 * time.Second)
		o.next(f).returns("v")
		first.wantValue("v")
		l.returns("too late")
	})
}

// Where Redis doesn't answer, the first caller has its value after 1 s; a caller
// joined can't know whether it was invalidated: ErrUnavailable. Under LoadLocally
// that came before the lease was taken has the value, and a later caller loads.
func TestRedisGoneBeforeThePublish(t *testing.T) {
	for what, policy := range map[string]singleflight.Policy{"fail": singleflight.Fail, "load locally": singleflight.LoadLocally} {
		for how, gone := range map[string]func(w *harness.Wire){
			"cut": (*harness.Wire).Cut, "silent": func(w *harness.Wire) { w.Stall() }, "unknown": func(w *harness.Wire) { w.StallReplies("load publish") },
		} {
			for name, loads := range map[string]int{"": 0, ", MaxLoads": 5} {
				subBubble(t, what+", "+how+name, func(f *fixture) {
					g, wire := f.open(func(c *singleflight.Config[string]) { c.OnUnavailable, c.MaxLoads = policy, loads })
					o := newOrigin(f)
					wire.CutOff("load enter")
					first := fetch(f, f.Context(), g, "k", o.load)
					early := fetch(f, f.Context(), g, "k", never(f))
					wire.Heal()
					l := o.next(f)
					late := fetch(f, f.Context(), g, "k", gives("own"))
					gone(wire)
					began := time.Now()
					l.returns("v")
					first.want("v", singleflight.Loaded)
					redistest.AtMost(f, time.Since(began), time.Second, "it waited for %v")
					if policy == singleflight.Fail {
						redistest.WantErr(f, early.Failed(), leasehold.ErrUnavailable)
						redistest.WantErr(f, late.Failed(), leasehold.ErrUnavailable)
					} else {
						early.want("v", singleflight.Shared)
						r := late.Got() // if the outcome is unknown, it may be found published
						redistest.Check(f, r.Value == "own" || how == "unknown", "%+v", r)
					}
					wire.Heal()
					time.Sleep(4 * time.Second)
					redistest.Check(f, f.freed("k"), "the lease is held yet")
				})
			}
		}
	}
}

// What Redis answered a process with may have been invalidated before another
// caller came: a caller that joined after the answer gets it only if it holds yet. Each case
// makes the enter of a first caller be answered, and its answer be held up.
func TestCallerThatJoinsAfterTheAnswerAsksAgain(t *testing.T) {
	for what, c := range map[string]struct {
		others      loader // of a call of another process: while the enter is held up, or before it
		meanwhile   bool
		value       string
		first, late singleflight.Source // where nothing was invalidated; 0: the failure
	}{
		"a value":                  {gives("old"), true, "old", singleflight.Cached, singleflight.Cached},
		"a remembered failure":     {fails(errBoom), false, "", 0, 0},
		"the mark of large values": {gives("far too large"), false, "own", singleflight.Loaded, singleflight.Shared},
	} {
		for _, invalidated := range []bool{false, true} {
			subBubble(t, fmt.Sprint(what, ", invalidated: ", invalidated), func(f *fixture) {
				g, other, wire := f.two(func(c *singleflight.Config[string]) { c.ErrorTTL, c.MaxValueBytes = time.Minute, 10 })
				fetch(f, f.Context(), g, "warm", gives("v")).Got()
				var first *pending[string]
				if c.meanwhile {
					wire.Stall("load enter")
					first = fetch(f, f.Context(), g, "k", gives("own"))
				}
				redistest.Get(f, "the other's end", fetch(f, f.Context(), other, "k", c.others).Done)
				wire.StallReplies("load enter")
				wire.Unstall()
				if !c.meanwhile {
					first = fetch(f, f.Context(), g, "k", gives("own"))
				}
				synctest.Wait()
				if invalidated {
					redistest.WantErr(f, other.Invalidate(f.Context(), "k"))
				}
				late := fetch(f, f.Context(), g, "k", gives("new"))
				redistest.CheckNow(f, !first.Ended(), "the first one has its answer: %+v, %v", first.Value, first.Err)
				wire.Heal()
				wants := func(p *pending[string], source singleflight.Source) {
					if source == 0 {
						redistest.WantText(f, p.Failed(), "boom")
					} else {
						p.want(c.value, source)
					}
				}
				wants(first, c.first)
				if invalidated {
					late.want("new", singleflight.Loaded)
				} else {
					wants(late, c.late)
				}
			})
		}
	}
}

// A ctx that ends without an error ends a call all the same, also as an entry is decoded. The call returns no zero value.
func TestCtxThatDoesNotSayWhyItEnded(t *testing.T) {
	bubble(t, func(f *fixture) {
		over := make(chan struct{})
		f.Cleanup(func() { close(over) })
		hangs := func() error { <-over; return nil }
		with := func(codec *jsonCodec) *singleflight.Group[string] {
			return mustOpen(f, func(c *singleflight.Config[string]) { c.Codec = codec })
		}
		put(f, with(&jsonCodec{}), "k", "v")
		g, writer := with(&jsonCodec{unmarshal: hangs}), with(&jsonCodec{marshal: hangs})
		waits := func(ctx context.Context) (string, error) { <-ctx.Done(); return "", nil }
		for call, do := range map[string]func(ctx context.Context) error{
			"do k":   func(ctx context.Context) error { return redistest.ErrorOf(g.Do(ctx, "k", waits)) },
			"do new": func(ctx context.Context) error { return redistest.ErrorOf(g.Do(ctx, "new", waits)) },
			"many":   func(ctx context.Context) error { return redistest.ErrorOf(g.DoMany(ctx, []string{"k"}, nil)) },
			"peek":   func(ctx context.Context) error { return peekErr(ctx, g, "k") },
			"put":    func(ctx context.Context) error { return writer.Put(ctx, "k", "w") },
		} {
			ctx := harness.EndedBadly{Context: f.Context(), Ended: make(chan struct{}), How: func() error { return nil }}
			time.AfterFunc(time.Second, func() { close(ctx.Ended) })
			err := do(ctx)
			redistest.Check(f, errors.Is(err, context.Canceled) && !errors.Is(err, leasehold.ErrInvalid), "%s: %v", call, err)
		}
		redistest.Expect(f, g.Stats().Undecodable, 0, "%d entries count as undecodable")
	})
}
