package semaphore

import (
	"context"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/internal/tests/harness"
	"github.com/leasehold-go/leasehold/semaphore"
)

// A setting sits in a stuck network. Another handle sets the limit meanwhile, or sets it back.
// Then the first one arrives. It changes nothing: the setting that was called later counts.
func TestSettingThatWasCalledLaterCounts(t *testing.T) {
	for name, total := range map[string]int{"none": 0, "total": 10} {
		t.Run(name, func(t *testing.T) {
			harness.EachServerAtOnce(t, func(t *testing.T, srv *redistest.Server) {
				for later, want := range map[int]string{3: "3", 0: ""} {
					s, p := newSite(t, srv.Client()), redistest.NewProxy(t, srv.Addr())
					cfg := semaphore.Config{Limit: 2, Total: total}
					first, second := s.closing(p.Client(), cfg), s.closing(srv.Client(), cfg)
					stored := func() string {
						if total > 0 {
							return s.RDB.HGet(t.Context(), "leasehold:sem:{"+s.Family+"}:limits", s.Key).Val()
						}
						return s.RDB.Get(t.Context(), s.Part("limit")).Val()
					}
					// The handles learn the server's clock, to within the round trip of a call.
					began := time.Now()
					for _, h := range []*semaphore.Semaphore{first, second} {
						if err := h.SetLimit(t.Context(), s.Key, 7); err != nil {
							t.Fatal(err)
						}
					}
					roundTrip := time.Since(began)
					script := "set limit"
					if total > 0 {
						script = "totals set limit"
					}
					answers := make(chan []int64, 10)
					p.SetHook(func(ev redistest.Event) redistest.Action {
						if harness.Script(ev.Cmd) == script && ev.Stage == redistest.OnReply {
							answers <- harness.Integers(ev.Reply)
						}
						return redistest.Pass
					})
					stuck := p.HoldRequest(harness.Does(script), 1)
					ctx, cancel := context.WithCancel(t.Context())
					done := harness.Go(func() (struct{}, error) { return struct{}{}, first.SetLimit(ctx, s.Key, 5) })
					stuck.Wait()
					cancel()
					harness.IsErr(t, "the first setting", harness.Got(t, harness.Slack, "its end", done).Err, context.Canceled, leasehold.ErrUnavailable)
					time.Sleep(roundTrip)
					if err := second.SetLimit(t.Context(), s.Key, later); err != nil {
						t.Fatal(err)
					}
					stuck.Release()
					if v := redistest.Get(t, "the answer to the setting that was stuck", answers); len(v) == 0 || v[0] != 7 {
						t.Errorf("the setting that was stuck is answered with %v; want that it was overtaken", v)
					}
					if now := stored(); now != want {
						t.Errorf("the limit is %q; want %q", now, want)
					}
				}
			})
		})
	}
}
