package singleflight

import (
	"strings"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/internal/redistest"
)

// A loader fails while a thousand wait in many processes: it is called once, all
// get its error. Without an ErrorTTL a later caller loads; with one no caller does
// until it has passed.
func TestFaultFailingLoader(t *testing.T) {
	const processes, callers, text = 8, 125, "the origin is down: code 4711"
	srv := redistest.Shared(t, redistest.Newest(t))
	for name, errorTTL := range map[string]time.Duration{"shared": 0, "remembered": time.Second} {
		t.Run(name, func(t *testing.T) {
			s := newFaultSite(t, srv.Client())
			crowd := newFaultCrowd(t, crowdSetup{
				Addr: srv.Addr(), Family: s.Family, TTL: time.Minute, LeaseTTL: 10 * time.Second, ErrorTTL: errorTTL,
			}, processes)
			crowd.run(crowdTask{Key: "warm", Callers: callers})
			fails := crowdTask{Key: s.Key, Callers: callers, Load: time.Second, Fail: text}
			done := crowd.run(fails)
			returned := time.Now()
			if len(done.Loads) != 1 {
				t.Fatalf("%d loads; want 1", len(done.Loads))
			}
			if len(done.Calls) != processes*callers {
				t.Fatalf("%d calls returned; want %d", len(done.Calls), processes*callers)
			}
			for _, c := range done.Calls {
				if !strings.Contains(c.Err, text) {
					t.Fatalf("a caller got %q, %q; want an error with %q", c.Value, c.Err, text)
				}
			}
			t.Logf("1 load, %d errors, %d of them from another process", len(done.Calls), done.Remote)
			one := *crowd
			one.children = crowd.children[:1]
			again := crowdTask{Key: s.Key, Callers: 1, Fail: text}
			if errorTTL > 0 {
				end := time.UnixMicro(done.Loads[0].End).Add(errorTTL)
				for time.Now().Before(end.Add(-200 * time.Millisecond)) {
					r := one.run(again)
					if len(r.Loads) > 0 && r.Loads[0].Began >= end.UnixMicro() {
						return // it was late, and is the next call
					}
					if len(r.Loads) != 0 || !strings.Contains(r.Calls[0].Err, text) {
						t.Fatalf("remembered for %v: after %v %d loads, %+v", errorTTL, time.Since(returned), len(r.Loads), r.Calls)
					}
				}
				time.Sleep(time.Until(returned.Add(errorTTL + 500*time.Millisecond)))
			}
			if r := one.run(again); len(r.Loads) != 1 {
				t.Errorf("the next call made %d loads; want 1: %+v", len(r.Loads), r.Calls)
			}
		})
	}
}
