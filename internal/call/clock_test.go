package call

import (
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/internal/redistest"
)

// The sample counts that says the most of a server's clock, unless the clock was set or the sample is old.
func TestRefined(t *testing.T) {
	born := time.Now()
	// at is a sample of a call that was sent after so long and ran at the server when it had its reply. The clock
	// is ahead by so much then.
	at := func(sent, took, ahead time.Duration) Sample {
		return Sample{Micros: (sent + took + ahead).Microseconds(), Sent: born.Add(sent), Got: born.Add(sent + took)}
	}
	const ms, s = time.Millisecond, time.Second
	old := at(s, 100*ms, 0)
	for name, c := range map[string]struct {
		by    Sample
		taken bool
	}{
		"slower":                          {at(2*s, s, 0), false},
		"quicker":                         {at(2*s, 10*ms, 0), true},
		"slower, and set forth":           {at(2*s, s, 200*ms), true},
		"slower, and set back":            {at(2*s, s, -2*s), true},
		"slower, when the other is young": {at(30*s, s, 0), false},
		"slower, when the other is old":   {at(30*s+200*ms, s, 0), true},
		"slower, of a call sent earlier":  {at(0, 2*s, 0), false},
	} {
		want := old
		if c.taken {
			want = c.by
		}
		redistest.Check(t, old.Refined(c.by) == want, "%s: taken %t", name, !c.taken)
	}
	redistest.Check(t, Sample{}.Refined(old) == old, "the first sample is not taken")
}
