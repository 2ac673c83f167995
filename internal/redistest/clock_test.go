package redistest

import (
	"testing"
	"time"
)

func TestClockJumpsWhileTheServerRuns(t *testing.T) {
	eachVersion(t, func(t *testing.T, v Version) {
		srv, clock := StartWithClock(t, v)
		rdb := srv.Client()
		if err := rdb.Set(t.Context(), "k", "v", 30*time.Minute).Err(); err != nil {
			t.Fatal(err)
		}
		for _, shift := range []time.Duration{0, time.Hour, -time.Hour, 0} {
			clock.Shift(shift)
			server, err := rdb.Time(t.Context()).Result()
			if err != nil {
				t.Fatal(err)
			}
			if off := time.Until(server) - shift; off.Abs() > time.Minute {
				t.Errorf("shifted by %v, the server's clock is %v off that", shift, off)
			}
		}
		clock.Shift(time.Hour)
		eventually(t, "a key is still there after its time", func() bool {
			return rdb.Exists(t.Context(), "k").Val() == 0
		})
	})
}
