package httpcap_test

import (
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold/integrations/httpcap"
	"github.com/leasehold-go/leasehold/semaphore"
)

// At most ten exports of a tenant run at the same time, in all processes together.
func capExports(rdb redis.UniversalClient, exports http.Handler) (http.Handler, error) {
	caps, err := semaphore.New(rdb, semaphore.Config{Name: "exports", Limit: 10, MaxWaiters: 100})
	if err != nil {
		return nil, err
	}
	capped, err := httpcap.New(caps, httpcap.Config{
		Key:  func(r *http.Request) string { return r.Header.Get("X-Tenant") },
		Wait: time.Second, // then 429, with a Retry-After
	})
	if err != nil {
		return nil, err
	}
	return capped(exports), nil
}

func Example() {
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"}) // there is no Redis
	defer rdb.Close()
	handler, err := capExports(rdb, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintln(w, "exported") // r.Context() ends before others are granted this permit
	}))
	if err != nil {
		log.Fatal(err)
	}
	for _, tenant := range []string{"", "acme"} {
		r := httptest.NewRequest(http.MethodPost, "/exports", nil)
		r.Header.Set("X-Tenant", tenant)
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r)
		fmt.Printf("tenant %q: %d %s", tenant, w.Code, w.Body)
	}
	// Output:
	// tenant "": 200 exported
	// tenant "acme": 503 {"title":"Service Unavailable","status":503}
}
