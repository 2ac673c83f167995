package simulation

import (
	"os"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/internal/redistest"
)

// waitedFor is a life with one load more if the publication is lost in silence: the waiter then loads.
const waitedFor = "a large value that another process waits for"

// lives are uses of a key from the first command to the last, by one process and by two.
var lives = map[string]string{
	"a lock, renewed and extended": `
1s take -key=m -hold=3.2s -extend=4s`,
	"permits that are handed over in a process": `
1s take -key=a -permits=3 -hold=500ms
1.2s take -key=a -permits=3 -hold=1.2s`,
	"permits that are handed over to another process": `
1s take -key=a -permits=3 -hold=500ms
1.2s take -client=3 -key=a -permits=3 -hold=1.2s`,
	"permits that are waited for and given up": `
1s take -key=a -permits=3 -hold=2s
1.2s take -client=3 -key=a -wait=300ms`,
	"a slot": `
1s once -key=n -slot=s -hold=300ms -keep=30m
1.1s once -client=3 -key=n -slot=s -keep=30m`,
	// A hit of a value that took so long to load might load it early, at random.
	"a value, loaded for longer than its lease, and invalidated": `
1s do -key=x -load=2.5s
3.7s invalidate -key=x
3.8s do -client=2 -key=x -load=10ms`,
	"a load that fails": `
1s do -key=x -load=100ms -fails`,
	waitedFor: `
1s do -key=x -load=1s -big
1.2s do -client=3 -key=x -load=1s`,
	"a load that one who waits for it leaves": `
1s do -key=x -load=1s
1.2s do -client=3 -key=x -load=1s -wait=300ms`,
}

// Each reply of a life is lost in turn, once with its connection and once in silence. What is promised holds all the
// same, and nothing is loaded twice. The race detector takes ten times as long: make test takes every third reply.
func TestLostReplyAtEveryCommand(t *testing.T) {
	every := redistest.Full(3, 5)
	if os.Getenv("LEASEHOLD_SEEDS") != "" { // .ci/run, without the race detector
		every = 1
	}
	for name, text := range lives {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			whole := replay(t, text)
			redistest.AtLeast(t, len(whole.replies), 9, "replies")
			most := whole.loads
			if name == waitedFor {
				most++
			}
			for i, r := range whole.replies {
				if i%every > 0 {
					continue
				}
				for _, silent := range []bool{false, true} {
					lost := step{at: r.at, client: r.client, verb: lose, dir: replies, span: time.Microsecond, silent: silent}
					o := replay(t, text+"\n"+lost.String())
					redistest.AtMost(t, o.loads, most, "%v: loads", lost)
				}
			}
		})
	}
}
