package guide

import (
	"context"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/singleflight"
)

func TestMain(m *testing.M) { redistest.Main(m) }

// The rule that docs/production.md names is enough for client-side caching, and
// without it every hit is a GET.
func TestClientSideCachingNeedsOneMoreRule(t *testing.T) {
	for _, v := range redistest.NeedServers(t) {
		t.Run(v.String(), func(t *testing.T) {
			srv := redistest.StartServer(t, v)
			rules := redistest.Must(redistest.DocumentedACL())(t)
			for _, c := range []struct {
				user string
				more []string
				gets bool // a hit sends one
			}{{"plain", nil, true}, {"caching", []string{"+client|tracking"}, false}} {
				args := []any{"acl", "setuser", c.user, "reset", "on", ">secret"}
				for _, rule := range append(rules, c.more...) {
					args = append(args, rule)
				}
				redistest.WantErr(t, srv.Client().Do(t.Context(), args...).Err())
				rdb := cachingClient(&redis.Options{Addr: srv.Addr(), Username: c.user, Password: "secret"})
				defer rdb.Close()
				users := redistest.Must(singleflight.New(rdb, singleflight.Config[User]{Name: c.user, TTL: time.Minute}))(t)
				defer users.Close(t.Context())
				hit := func() {
					redistest.Must(users.Do(t.Context(), "7", func(context.Context) (User, error) { return User{"7", "Ada"}, nil }))(t)
				}
				for range 3 { // loaded, and then cached
					hit()
				}
				before := redistest.Commandstats(t, srv.Client())["get"]
				for range 20 {
					hit()
				}
				if n := redistest.Commandstats(t, srv.Client())["get"] - before; (n > 0) != c.gets {
					t.Errorf("user %s: %d GETs for 20 hits", c.user, n)
				}
			}
		})
	}
}
