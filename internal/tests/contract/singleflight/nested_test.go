package singleflight

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/internal/tests/harness"
	"github.com/leasehold-go/leasehold/singleflight"
)

// Ways in which a program hands its client to two handles.
type (
	embedsSingle  struct{ *redis.Client }
	embedsCluster struct{ *redis.ClusterClient }
	hides         struct{ redis.UniversalClient }
	incomparable  struct {
		redis.UniversalClient
		hooks []func()
	}
)

func embedding(rdb redis.UniversalClient) redis.UniversalClient {
	if c, ok := rdb.(*redis.ClusterClient); ok {
		return &embedsCluster{c}
	}
	return &embedsSingle{rdb.(*redis.Client)}
}

// A loader that asks for its own key gets an error at once, through each handle on the same cached values, and before
// anything is sent. If the client's type cannot be compared, a handle knows its own loads only. The same key is no cycle
// if it is of another schema, or on another client, which may be one of another server.
func TestLoaderThatAsksForItsOwnKey(t *testing.T) {
	some(t, func(f *fixture) {
		elsewhere := redis.NewClient(&redis.Options{Addr: redistest.Mini(f).Addr()})
		f.Cleanup(func() { _ = elsewhere.Close() })
		for what, wrap := range map[string]func(rdb redis.UniversalClient) redis.UniversalClient{
			"one client":  func(rdb redis.UniversalClient) redis.UniversalClient { return rdb },
			"embedded":    embedding,
			"hidden":      func(rdb redis.UniversalClient) redis.UniversalClient { return hides{rdb} },
			"hashed keys": func(rdb redis.UniversalClient) redis.UniversalClient { return rdb },
			"incomparable": func(rdb redis.UniversalClient) redis.UniversalClient {
				return incomparable{rdb, []func(){func() {}}}
			},
		} {
			wire := &harness.Wire{Patience: clientPatience}
			rdb := f.Connect(wire)
			rdb.AddHook(wire)
			hash := func(c *singleflight.Config[string]) { c.HashKeys = what == "hashed keys" }
			one, two, three := openOn(f, wrap(rdb), hash), openOn(f, wrap(rdb), hash), openOn(f, wrap(rdb), hash)
			if what == "incomparable" {
				two, three = one, one
			}
			far := openOn(f, elsewhere, hash)
			otherSchema := openOn(f, rdb, hash, func(c *singleflight.Config[string]) { c.Schema = 2 })
			refused := func(ctx context.Context, g *singleflight.Group[string]) {
				ctx, cancel := context.WithTimeout(ctx, clientPatience)
				defer cancel()
				sent := wire.Sent("get", "load enter")
				redistest.WantErr(f, redistest.ErrorOf(g.Do(ctx, what, never(f))), singleflight.ErrLoadCycle)
				redistest.WantErr(f, redistest.ErrorOf(g.DoMany(ctx, []string{what}, newBatches().load)), singleflight.ErrLoadCycle)
				redistest.Expect(f, wire.Sent("get", "load enter")-sent, 0, "%s: %d commands were sent", what)
			}
			fetch(f, f.Context(), one, what, func(ctx context.Context) (string, error) {
				refused(ctx, one)
				refused(ctx, two)
				return two.Do(ctx, "inner of "+what, func(ctx context.Context) (string, error) {
					refused(ctx, three)
					return three.Do(ctx, "innermost of "+what, func(ctx context.Context) (string, error) {
						return otherSchema.Do(ctx, what, func(ctx context.Context) (string, error) { return far.Do(ctx, what, gives("v")) })
					})
				})
			}).want("v", singleflight.Loaded)
		}
	})
}

// Two loads of a process ask for each other's key: whichever asks last gets an error at
// once, and the other one its value.
func TestLoadsThatAskForEachOther(t *testing.T) {
	some(t, func(f *fixture) {
		g, _ := f.open()
		var runs sync.WaitGroup
		runs.Add(2)
		var refused atomic.Int32
		ask := func(key string) loader {
			return func(ctx context.Context) (string, error) {
				runs.Done()
				runs.Wait()
				_, err := g.Do(ctx, key, never(f))
				if errors.Is(err, singleflight.ErrLoadCycle) {
					refused.Add(1)
				}
				return "v", nil
			}
		}
		a, b := fetch(f, f.Context(), g, "a", ask("b")), fetch(f, f.Context(), g, "b", ask("a"))
		ra, rb := a.Got(), b.Got()
		redistest.Check(f, ra.Value == "v" && rb.Value == "v" && refused.Load() == 1, "%+v, %+v, %d refused", ra, rb, refused.Load())
	})
}

// A cycle through another process ends once the callers have left, and the keys can be loaded again.
func TestCycleThroughAnotherProcessUnwinds(t *testing.T) {
	some(t, func(f *fixture) {
		one, two, _ := f.two()
		runs := make(chan struct{}, 2)
		meet := make(chan struct{})
		ctx, leave := context.WithCancel(f.Context())
		ask := func(g *singleflight.Group[string], key string) loader {
			return func(ctx context.Context) (string, error) {
				runs <- struct{}{}
				<-meet
				// Where one caller leaves later than the other, its process may load in the other's place.
				return g.Do(ctx, key, fails(errors.New("nobody wants it")))
			}
		}
		a := fetch(f, ctx, one, "a", ask(one, "b"))
		b := fetch(f, ctx, two, "b", ask(two, "a"))
		redistest.Get(f, "a load", runs)
		redistest.Get(f, "the other load", runs)
		close(meet)
		redistest.Eventually(f, "both to wait", func() bool { return f.Queued("a") == 1 && f.Queued("b") == 1 })
		leave()
		a.Failed()
		b.Failed()
		redistest.Eventually(f, "the leases to be given back", func() bool {
			return !inspect(f, one, "a").Loading && !inspect(f, one, "b").Loading
		})
		fetch(f, f.Context(), two, "a", gives("v")).want("v", singleflight.Loaded)
	})
}

// A load that was begun for a caller which was then served something older is not waited for by that caller. So its
// loader may ask for the key of the load that the caller runs in, and gets that load's value.
func TestLoadThatItsCallersLoadDoesNotWaitFor(t *testing.T) {
	for what, soft := range map[string]time.Duration{"a refresh behind a stale value": 0, "a load at SoftTimeout": time.Second} {
		subBubble(t, what, func(f *fixture) {
			g, _ := f.open(staleFor, func(cfg *singleflight.Config[string]) { cfg.ErrorTTL, cfg.SoftTimeout = time.Minute, soft })
			f.stalled(g, "b")
			o := newOrigin(f)
			a := fetch(f, f.Context(), g, "a", func(ctx context.Context) (string, error) {
				v, err := g.Do(ctx, "b", func(ctx context.Context) (string, error) {
					time.Sleep(2 * time.Second) // longer than SoftTimeout
					return g.Do(ctx, "a", never(f))
				})
				redistest.Check(f, v == "old" && err == nil, "%q, %v", v, err)
				return o.load(ctx)
			})
			time.Sleep(10 * time.Second)
			s := inspect(f, g, "b")
			redistest.Check(f, s.Loading && s.Failure == "", "while a is loaded: %+v", s)
			o.next(f).returns("new")
			a.want("new", singleflight.Loaded)
			synctest.Wait()
			wantStored(f, g, "b", "new")
		})
	}
}

// A refresh that the load of its caller waits for after all closes a cycle where it asks for that load's key: it is
// told, and nobody waits for ever. It may be served what is there of that key.
func TestRefreshThatIsWaitedForAfterAll(t *testing.T) {
	for _, old := range []bool{false, true} {
		subBubble(t, fmt.Sprintf("something old is there: %v", old), func(f *fixture) {
			g, _ := f.open(staleFor)
			f.stalled(g, "b")
			began := make(chan struct{})
			a := fetch(f, f.Context(), g, "a", func(ctx context.Context) (string, error) {
				refresh := func(ctx context.Context) (string, error) {
					close(began)
					time.Sleep(2 * time.Minute)
					v, err := g.Do(ctx, "a", never(f))
					if old {
						return v, err
					}
					redistest.WantErr(f, err, singleflight.ErrLoadCycle)
					return "B", nil
				}
				redistest.Gives(g.Do(ctx, "b", refresh))(f, "old")
				time.Sleep(time.Minute) // until it is stale no more
				return g.Do(ctx, "b", never(f))
			})
			<-began
			time.Sleep(100 * time.Second)
			want := "B"
			if old {
				want = "put"
				redistest.WantErr(f, g.Put(f.Context(), "a", "put"))
			}
			time.Sleep(30 * time.Second)
			a.want(want, singleflight.Loaded)
		})
	}
}
