package setting

import "testing"

// The numbers of the settings of a handle rise, also if its estimate of the server's clock
// falls a little. They follow the clock if it went back by far.
func TestSettingNumbersRise(t *testing.T) {
	var s Setter
	last := int64(0)
	for _, at := range []int64{1_000_000_000, 1_000_000_000, 999_000_000, 1_000_000_001, 1_000_000_100} {
		n := s.next(at)
		if n <= last || n > at+1_100_000 {
			t.Errorf("at %d: %d after %d", at, n, last)
		}
		last = n
	}
	if n := s.next(last - 3_600_000_000); n != last-3_600_000_000 {
		t.Errorf("an hour earlier: %d after %d", n, last)
	}
}
