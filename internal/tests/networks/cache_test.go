package networks_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/singleflight"
)

// A crowd that comes at once for values of a cache, which have to be loaded first.
func TestCrowdOnACacheOverALongRoundTrip(t *testing.T) {
	eachSite(t, 100*time.Millisecond, true, func(s *site) {
		g, err := singleflight.New[string](s.far(), singleflight.Config[string]{Name: "net", TTL: time.Minute})
		redistest.CheckNow(s, err == nil, "New: %v", err)
		s.Cleanup(func() { _ = g.Close(context.Background()) })
		s.atOnce(either(20000, 3000), "Do and DoMany", func(i int) error {
			key := fmt.Sprint("key", i%200)
			value, err := "", error(nil)
			if i%4 == 3 { // with a key that others want, too
				var all map[string]string
				all, err = g.DoMany(s.Context(), []string{key, "key0"}, func(_ context.Context, keys []string) (map[string]string, error) {
					all := map[string]string{}
					for _, key := range keys {
						all[key] = "value of " + key
					}
					return all, nil
				})
				value = all[key]
			} else {
				value, err = g.Do(s.Context(), key, func(context.Context) (string, error) { return "value of " + key, nil })
			}
			if err == nil && value != "value of "+key {
				err = fmt.Errorf("%s has the value %q", key, value)
			}
			return err
		})
	})
}
