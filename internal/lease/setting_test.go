package lease_test

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// The numbers of the settings of a handle rise, also if its estimate of the server's clock
// falls a little. They follow the clock if it went back by far.
func TestSettingNumbersRise(t *testing.T) {
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"}) // nothing is sent
	t.Cleanup(func() { _ = rdb.Close() })
	m := newLocks(t, rdb, time.Second)
	last := int64(0)
	for _, at := range []int64{1_000_000_000, 1_000_000_000, 999_000_000, 1_000_000_001, 1_000_000_100} {
		n := m.SettingNumber(at)
		if n <= last || n > at+1_100_000 {
			t.Errorf("at %d: %d after %d", at, n, last)
		}
		last = n
	}
	if n := m.SettingNumber(last - 3_600_000_000); n != last-3_600_000_000 {
		t.Errorf("an hour earlier: %d after %d", n, last)
	}
}
