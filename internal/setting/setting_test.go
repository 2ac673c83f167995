package setting

import (
	"testing"
	"time"
)

// The numbers of the settings of a handle rise, also if its estimate of the server's clock
// falls a little. They follow the clock if it went back by far.
func TestSettingNumbersRise(t *testing.T) {
	var s Setter
	called, last := time.Now(), int64(0)
	for _, at := range []int64{1_000_000_000, 1_000_000_000, 999_000_000, 1_000_000_001, 1_000_000_100} {
		n := s.next(called, at)
		if n <= last || n > at+1_100_000 {
			t.Errorf("at %d: %d after %d", at, n, last)
		}
		called, last = called.Add(time.Millisecond), n
	}
	if n := s.next(called, last-3_600_000_000); n != last-3_600_000_000 {
		t.Errorf("an hour earlier: %d after %d", n, last)
	}
}

// A setting that gets its number after one that was called later does not overtake it.
func TestSettingNumbersRiseInTheOrderOfTheCalls(t *testing.T) {
	var s Setter
	called := time.Now()
	for _, step := range []struct {
		after  time.Duration
		at     int64
		lo, hi int64
	}{
		{63 * time.Millisecond, 1_000_063_000, 1_000_063_000, 1_000_063_000},
		{0, 1_000_000_000, 1_000_000_000, 1_000_000_000},
		{time.Millisecond, 1_000_070_000, 0, 1_000_062_999}, // by an estimate that has risen meanwhile
		{64 * time.Millisecond, 1_000_063_000, 1_000_063_001, 1_000_063_100},
	} {
		if n := s.next(called.Add(step.after), step.at); n < step.lo || n > step.hi {
			t.Errorf("the one called after %v has number %d; want %d to %d", step.after, n, step.lo, step.hi)
		}
	}
}
