package simulation

import (
	"os"
	"strings"
	"testing"

	"github.com/leasehold-go/leasehold/internal/redistest"
)

// A fleet on a bad network, ten minutes of it in a second: what docs/guarantees.md
// promises holds, everybody is served in the end, and nothing is left.
func TestSimulation(t *testing.T) {
	if file, ok := os.LookupEnv("LEASEHOLD_SCHEDULE"); ok {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		s, err := parse(strings.NewReader(string(text)))
		if err != nil {
			t.Fatal(err)
		}
		if o := run(t, s); o.violation != nil {
			t.Errorf("%v", o.violation)
		}
		return
	}
	redistest.Seeds(t, 4, func(t *testing.T, seed uint64) {
		s := generate(seed)
		o := run(t, s)
		if o.violation != nil {
			report(t, seed, s, o.violation)
			return
		}
		t.Logf("%d steps, %v", len(s), o.tally)
	})
}

// What a schedule says is what its text says.
func TestScheduleText(t *testing.T) {
	s := generate(1)
	again, err := parse(strings.NewReader(s.String()))
	if err != nil {
		t.Fatal(err)
	}
	if len(again) != len(s) {
		t.Fatalf("%d steps became %d", len(s), len(again))
	}
	for i := range s {
		if s[i] != again[i] {
			t.Errorf("step %d was %v and is %v", i, s[i], again[i])
		}
	}
}
