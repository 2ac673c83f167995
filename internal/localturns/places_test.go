package localturns

import "testing"

// Places that have been cancelled, and have not gone yet, do not count: as many live ones
// stay as turns wait.
func TestCancelExcessCountsLivePlaces(t *testing.T) {
	for name, c := range map[string]struct {
		cancelled []bool // in the order of their coming
		turns     int
		want      int // live places
	}{
		"the live one is the newest": {[]bool{true, false}, 1, 1},
		"the live one is the oldest": {[]bool{false, true}, 1, 1},
		"no turn waits":              {[]bool{false, true}, 0, 0},
		"one of two is too many":     {[]bool{false, true, false}, 1, 1},
	} {
		t.Run(name, func(t *testing.T) {
			ln := &line{length: c.turns}
			for _, cancelled := range c.cancelled {
				ln.places = append(ln.places, &place{cancel: func() {}, cancelled: cancelled})
			}
			ln.cancelExcess()
			live := 0
			for _, p := range ln.places {
				if !p.cancelled {
					live++
				}
			}
			if live != c.want {
				t.Errorf("%d live places are left, want %d", live, c.want)
			}
		})
	}
}
