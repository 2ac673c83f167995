package simulation

import (
	"os"
	"runtime/debug"
	"strings"
	"testing"

	"github.com/leasehold-go/leasehold/internal/redistest"
)

func TestMain(m *testing.M) {
	// A run makes much garbage and keeps little: half of the time went into collecting it.
	debug.SetGCPercent(800)
	redistest.Main(m)
}

// A fleet on a bad network, ten minutes of it in a second: what docs/guarantees.md
// promises holds, everybody is served in the end, and nothing is left.
func TestSimulation(t *testing.T) {
	if file, ok := os.LookupEnv("LEASEHOLD_SCHEDULE"); ok {
		replay(t, string(redistest.Must(os.ReadFile(file))(t)))
		return
	}
	walk(t, plan) // .ci/run plays 100
}

// Clients want slots of DoOnce, also with a KeepFor, on a bad network.
func TestSimulationOfSlots(t *testing.T) { walk(t, slotsOf) }

// They take several things at once, in any order.
func TestSimulationOfSeveral(t *testing.T) { walk(t, severalOf) }

// They keep leases that nobody uses.
func TestSimulationOfKeptLeases(t *testing.T) { walk(t, keptOf) }

// walk plays what is made from two seeds, or one where somebody waits, if the environment does not say otherwise.
func walk(t *testing.T, plan func(seed uint64) schedule) {
	redistest.Seeds(t, redistest.Full(2, 1), func(t *testing.T, seed uint64) {
		s := plan(seed)
		o := run(t, s)
		if o.violation != nil {
			report(t, seed, s, o.violation)
			return
		}
		t.Logf("%d steps, %v", len(s), o.tally)
	})
}

// replay plays a schedule, given as text, in which no promise may be broken.
func replay(t *testing.T, text string) outcome {
	t.Helper()
	o := run(t, redistest.Must(parse(strings.NewReader(text)))(t))
	redistest.Check(t, o.violation == nil, "%v", o.violation)
	return o
}

// The answer to a completion is lost for longer than the completion is remembered. Then no copy
// of the call finds its mark, and the caller is not told that the slot is open.
func TestCompletionIsForgottenBeforeItsAnswer(t *testing.T) {
	o := replay(t, `2s once -client=2 -key=n -slot=earlier -hold=5.8s -keep=30m0s
16.381955s once -client=2 -key=m -slot=short -hold=18.979ms -keep=1.015s
16.400716s lose -client=2 -dir=replies -for=2ms -silent
`)
	redistest.Check(t, o.tally["slots of unknown completion"] == 1, "the run came to %v, want one slot of unknown completion", o.tally)
}

// The last permits of a family with a total are given back less than 24 s before the end. So long its charges are kept.
func TestChargesAreKeptForAWhile(t *testing.T) {
	replay(t, `9m21.375648s adjust -client=2 -permits=4
9m22.927226s take -client=2 -key=v -permits=1 -hold=1.904612s
9m23.638606s take -client=1 -key=u -permits=3 -wait=14.143262s -hold=17.876376s
9m23.970847s take -client=0 -key=t -permits=1 -wait=1.600104s -hold=116.106ms
9m24.488544s take -client=1 -key=v -permits=2 -hold=583.985ms
9m25.429828s take -client=3 -key=t -permits=1 -hold=251.102ms
`)
}

// A hook of the client ends the goroutine that reads the value for which callers of its process have waited.
func TestHookThatEndsALookUpForWaiters(t *testing.T) {
	replay(t, `8m13.695785s do -key=x -load=1.330316s -obeys=true
8m14.034024s do -client=1 -key=x -load=412.216ms -obeys=true -wait=4.597852s
8m14.285089s do -client=1 -fails=true -key=x -load=132.4ms
8m14.547015s stall -for=819.626ms
8m15.282357s misuse -client=1 -dir=exits -for=1.209098s -late=true
`)
}

// What a schedule says is what its text says.
func TestScheduleText(t *testing.T) {
	s := generate(1)
	again := redistest.Must(parse(strings.NewReader(s.String())))(t)
	redistest.CheckNow(t, len(again) == len(s), "%d steps became %d", len(s), len(again))
	for i := range s {
		redistest.Check(t, s[i] == again[i], "step %d was %v and is %v", i, s[i], again[i])
	}
}

// Locks of three and five servers, by turns, of which a minority is in trouble at any time: nobody holds a
// lock beside another one, tokens rise, no lock is lost, every waiter is served, and all can be closed.
func TestQuorumSimulation(t *testing.T) {
	redistest.Seeds(t, redistest.Full(4, 2), func(t *testing.T, seed uint64) {
		var w *quorumWorld
		n := 3 + 2*int(seed%2)
		stuck := bubble(t, func(t *testing.T) { w = playQuorum(t, seed, n) })
		if stuck != nil && (w == nil || w.violation == nil) {
			t.Errorf("the bubble: %v", stuck)
			return
		}
		if w.violation != nil {
			t.Errorf("%d servers: %v\n%s", n, w.violation, w.describe())
			return
		}
		t.Logf("%d servers, %d troubles, %v, longest wait %v", n, len(w.script), w.tally, w.longest)
	})
}
