package guide

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/leaseholdtest"
	"github.com/leasehold-go/leasehold/semaphore"
	"github.com/leasehold-go/leasehold/singleflight"
)

// The three ways to go on while Redis is away for a minute.
func TestWhileRedisIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rdb, ctx := leaseholdtest.Client(t), t.Context()
		caps, err := semaphore.New(rdb, semaphore.Config{Name: "exports", Limit: 1})
		if err != nil {
			t.Fatal(err)
		}
		defer caps.Close(ctx)
		runs := 0
		work := func(ctx context.Context) error { runs++; return ctx.Err() }
		want := func(what string, err error, n int) {
			t.Helper()
			if err != nil || runs != n {
				t.Errorf("%s: %v, %d runs so far; want no error and %d", what, err, runs, n)
			}
		}
		local := make(chan struct{}, 1)
		want("retry, Redis is there", runWhenPossible(ctx, caps, "acme", work), 1)
		want("skip, Redis is there", runIfPossible(ctx, caps, "acme", work), 2)
		want("without, Redis is there", runAnyway(ctx, caps, local, "acme", work), 3)

		end := leaseholdtest.Outage(rdb)
		want("skip", runIfPossible(ctx, caps, "acme", work), 3)
		want("without", runAnyway(ctx, caps, local, "acme", work), 4)
		began := time.Now()
		time.AfterFunc(time.Minute, end)
		want("retry", runWhenPossible(ctx, caps, "acme", work), 5)
		if waited := time.Since(began); waited < time.Minute || waited > 2*time.Minute {
			t.Errorf("waited %v for a Redis that was away for a minute", waited)
		}

		defer leaseholdtest.Outage(rdb)()
		short, cancel := context.WithTimeout(ctx, 20*time.Second)
		defer cancel()
		if err := runWhenPossible(short, caps, "acme", work); !errors.Is(err, leasehold.ErrUnavailable) || runs != 5 {
			t.Errorf("%v, %d runs; want ErrUnavailable at the end of ctx", err, runs)
		}
	})
}

func TestLimitedAnswers429(t *testing.T) {
	caps, err := newCaps(leaseholdtest.Client(t), 1)
	if err != nil {
		t.Fatal(err)
	}
	defer caps.Close(t.Context())
	entered, leave := make(chan struct{}), make(chan struct{})
	h := limited(caps, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		close(entered)
		<-leave
	}))
	get := func(tenant string) *http.Response {
		r := httptest.NewRequest("GET", "/", nil)
		r.Header.Set("X-Tenant", tenant)
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		return w.Result()
	}
	first := make(chan *http.Response)
	go func() { first <- get("acme") }()
	<-entered
	if r := get("acme"); r.StatusCode != http.StatusTooManyRequests || r.Header.Get("Retry-After") == "" {
		t.Errorf("status %d, Retry-After %q; want 429 and a time", r.StatusCode, r.Header.Get("Retry-After"))
	}
	if r := get(""); r.StatusCode != http.StatusBadRequest {
		t.Errorf("no tenant: status %d; want 400", r.StatusCode)
	}
	close(leave)
	if r := <-first; r.StatusCode != http.StatusOK {
		t.Errorf("status %d; want 200", r.StatusCode)
	}
}

func TestHandlerTellsWhereAValueIsFrom(t *testing.T) {
	users, err := singleflight.New(leaseholdtest.Client(t), singleflight.Config[User]{Name: "users", TTL: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	defer users.Close(t.Context())
	mux := http.NewServeMux()
	mux.Handle("/users/{id}", userHandler(users, func(_ context.Context, id string) (User, error) { return User{id, "Ada"}, nil }))
	for _, want := range []string{"loaded", "cached"} {
		w := httptest.NewRecorder()
		mux.ServeHTTP(w, httptest.NewRequest("GET", "/users/7", nil))
		if got := w.Result().Header.Get("X-Cache"); w.Code != http.StatusOK || got != want || w.Body.String() != "Ada\n" {
			t.Errorf("status %d, X-Cache %q, %q; want 200, %q, Ada", w.Code, got, w.Body, want)
		}
	}
}
