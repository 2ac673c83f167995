package call

import (
	"context"
	"crypto/sha1"
	"encoding/hex"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// A Script is one constant script with the digest by which a server knows it.
type Script struct {
	name, source, sha string
	shaWord           any // sha, as an argument of a command
}

// scripts has all scripts that NewScript made, for ScriptName.
var scripts sync.Map // *Script

// NewScript makes a script of source; name is its name in tests and traces.
func NewScript(name, source string) *Script {
	sum := sha1.Sum([]byte(source))
	sha := hex.EncodeToString(sum[:])
	s := &Script{name: name, source: source, sha: sha, shaWord: sha}
	scripts.Store(s, nil)
	return s
}

// ScriptName returns the name of a script, given its digest or its text, for tests and traces.
// It returns "" for a script that NewScript did not make.
func ScriptName(word string) (name string) {
	scripts.Range(func(s, _ any) bool {
		if s := s.(*Script); word == s.sha || word == s.source {
			name = s.name
		}
		return name == ""
	})
	return name
}

// Milliseconds converts a duration to milliseconds for scripts. It rounds up, so that a lease
// is never shorter than what was asked for.
func Milliseconds(d time.Duration) int64 {
	ms := d.Milliseconds()
	if d%time.Millisecond > 0 {
		ms++
	}
	return ms
}

// Duration is the inverse. The longest duration, which was rounded up, stays the longest.
func Duration(ms int64) time.Duration {
	if ms > math.MaxInt64/int64(time.Millisecond) {
		return math.MaxInt64
	}
	return time.Duration(ms) * time.Millisecond
}

// MillisecondsUp converts a time in µs to milliseconds. It rounds up, so that nothing is over before its time.
func MillisecondsUp(us int64) int64 { return (us + 999) / 1000 }

// Flag returns a bool as scripts take it: 0 or 1.
func Flag(b bool) int {
	if b {
		return 1
	}
	return 0
}

// Malformed returns the error for a reply that this version cannot read.
func Malformed(script string, reply []int64) error {
	return fmt.Errorf("%s answered %d integers that this version does not know", script, len(reply))
}

// A tally counts what the client library asks of a command, so that a hook of the user's that
// sends a command again is noticed: then a copy that was not answered may still be under way.
//
// go-redis reads the arguments of a command once for each time that it sends the command (a Cluster client twice). After
// a round trip that failed it asks whether it may repeat a command that was alone; those of a pipeline it tells the
// error, or that there is none. A hook that logs reads the arguments, too, but for each command as often. So a command
// was sent more than once if it succeeded after a failure or after another success, or if its arguments were read more
// often than the client does at the least. A hook that sends every command twice, alone or on a Cluster, cannot be told
// from one that logs.
type tally struct {
	reads, failures atomic.Int32
	broken          atomic.Bool  // it was told an error that is no answer
	stage           atomic.Int32 // 1: it was told that it succeeded; 2: then its arguments were read; 3: then it was told so again
	sentOn          atomic.Bool  // the last answer names another node
	link            *link
	key             string
}

// integersCommand is the command of a call. go-redis must not send it again by itself: a stray
// copy could run after the caller has acted on the outcome.
type integersCommand struct {
	*redis.IntSliceCmd
	tally
}

// anythingCommand is the command of a call whose reply also has strings.
type anythingCommand struct {
	*redis.SliceCmd
	tally
}

func (t *tally) NoRetry() bool { t.failures.Add(1); return true }

// Args counts that the arguments were read. They are read before they are written to a
// connection, so a command whose arguments were never read was surely not sent.
func (c *integersCommand) Args() []any { c.read(c.IntSliceCmd); return c.IntSliceCmd.Args() }
func (c *anythingCommand) Args() []any { c.read(c.SliceCmd); return c.SliceCmd.Args() }

// read forgets an answer that sends the command on: it is about to go to the other node, and go-redis would leave
// that answer in place if no other one comes. The node that gave it did not run the script, so no copy is counted.
// It does not ask cmd for its error, because that may wait for the answer.
func (t *tally) read(cmd redis.Cmder) {
	if t.sentOn.Swap(false) {
		cmd.SetErr(nil)
		return
	}
	t.reads.Add(1)
	t.stage.CompareAndSwap(1, 2)
}

// SetErr is called with each answer that is an error, also if the client library goes on with another node.
func (c *integersCommand) SetErr(err error) { c.told(err); c.IntSliceCmd.SetErr(err) }
func (c *anythingCommand) SetErr(err error) { c.told(err); c.SliceCmd.SetErr(err) }

func (t *tally) told(err error) {
	switch {
	case err == nil:
		if !t.stage.CompareAndSwap(0, 1) {
			t.stage.CompareAndSwap(2, 3)
		}
	case serverError(Harmless(err)) == "":
		t.broken.Store(true)
	}
	t.asks(err)
}

// command makes a fresh command, because a processed command keeps its outcome.
func (c *Call) command(ctx context.Context, by *link) redis.Cmder {
	var cmd redis.Cmder
	if c.mixed {
		c.anything = &anythingCommand{SliceCmd: redis.NewSliceCmd(ctx, c.args...)}
		cmd = c.anything
	} else {
		c.integers.IntSliceCmd = redis.NewIntSliceCmd(ctx, c.args...)
		c.integers.reads.Store(0)
		c.integers.failures.Store(0)
		c.integers.broken.Store(false)
		c.integers.stage.Store(0)
		c.integers.sentOn.Store(false)
		cmd = &c.integers
	}
	t := c.tally()
	t.link, t.key = by, c.Key()
	// SetStepCount saves a question: a Cluster client asks a server for the step count of a
	// command that does not have one, and no ctx bounds that question.
	cmd.SetStepCount(1)
	return cmd
}

// tally returns the tally of the last command of the call.
func (c *Call) tally() *tally {
	if c.mixed {
		return &c.anything.tally
	}
	return &c.integers.tally
}

// Copied reports whether the call was sent more often than once, by a hook of the client, so
// that a copy without an answer may still be under way. Ask once the call has its outcome.
func (c *Call) Copied() bool { return c.copied.Load() }

// A leastReads is how often a client reads the arguments of a command at the least, by the
// command's position. 0: not known yet.
type leastReads [positions]struct {
	reads    atomic.Int32
	exceeded atomic.Int32 // commands in a row that were read more often
}

// A position is where a command was sent. A hook may name a pipeline in its log by the first command. Calls that replicas
// confirm go to the node itself, past a Cluster client, which would read them once more.
type position int

const (
	alone position = iota
	firstOfPipeline
	inPipeline
	firstConfirmed
	inConfirmed
	positions
)

// maxExceeded is how many commands in a row may look as if they had been sent twice. After them
// the least is learned anew, because a hook that reads arguments may have been added meanwhile.
const maxExceeded = 16

// countSendings notes whether a command was sent more than once, after its round trip. answered
// says that it has a reply.
func (c *link) countSendings(one *Call, at position, answered bool) {
	t := one.tally()
	reads := t.reads.Load()
	least, usual := &c.least[at], int32(1)
	if c.cluster != nil {
		usual = 2
	}
	known := least.reads.Load()
	// A command without a reply teaches nothing: a Cluster client reads the arguments once
	// before it has a connection, and so may a hook that then refuses to send the command.
	if reads > 0 && answered && (known == 0 || reads < known) {
		least.reads.CompareAndSwap(known, reads) // if another call was quicker, the next one teaches
		known = reads
	}
	if known != 0 {
		usual = known
	}
	switch {
	case reads > usual:
		if least.exceeded.Add(1) > maxExceeded {
			least.reads.Store(0)
		}
		one.copied.Store(true)
	case least.exceeded.Load() != 0:
		least.exceeded.Store(0)
	}
	if answered && (t.broken.Load() || at == alone && t.failures.Load() > 0 || at != alone && c.cluster == nil && t.stage.Load() == 3) {
		one.copied.Store(true)
	}
}
