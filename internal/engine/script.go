package engine

import (
	"context"
	"crypto/sha1"
	"encoding/hex"
	"errors"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold/luascripts"
)

// script is one constant script and its name to the server.
type script struct {
	source, sha string
	name        any // sha, as an argument
}

func load(source string) script {
	sum := sha1.Sum([]byte(source))
	sha := hex.EncodeToString(sum[:])
	return script{source: source, sha: sha, name: sha}
}

var (
	enterScript    = load(luascripts.PermitsEnter())
	leaveScript    = load(luascripts.PermitsLeave())
	askScript      = load(luascripts.PermitsAsk())
	renewScript    = load(luascripts.PermitsRenew())
	guardSetScript = load(luascripts.GuardSet())

	flightEnterScript      = load(luascripts.LoadsEnter())
	flightAskScript        = load(luascripts.LoadsAsk())
	flightLeaveScript      = load(luascripts.LoadsLeave())
	flightRenewScript      = load(luascripts.LoadsRenew())
	flightLandScript       = load(luascripts.LoadsPublish())
	flightInvalidateScript = load(luascripts.LoadsInvalidate())
	flightInspectScript    = load(luascripts.LoadsInspect())
)

// once is a command that the client library sends once: after an error a script
// that changes something may run a second time only where we know of it, since
// a copy can arrive after all else was settled. Retries are ours.
type once struct{ *redis.IntSliceCmd }

// onceMixed is once for a script that answers with strings, too.
type onceMixed struct{ *redis.SliceCmd }

// NoRetry tells go-redis not to send the command again by itself.
func (once) NoRetry() bool      { return true }
func (onceMixed) NoRetry() bool { return true }

// Call is one run of a script: what is sent, and what came back.
type Call struct {
	script *script
	args   []any // "evalsha", sha, number of keys, keys…, arguments…
	mixed  bool  // answers with strings, too
	cmd    redis.Cmder
	turn   turn // to be sent, in a lane

	// Node names the server that the call is for, so that a batch has one: see
	// Engine.Node.
	Node string
	// Done takes the outcome where the call was sent by Send.
	Done func(reply []int64, err error)
	// Text is the strings of the reply, in order, where it has any.
	Text []string

	room [20]any // for args: most calls need no more
}

// newCall prepares a call. Words that are not constant are pointers: what they
// point to stays as it is, and needs no allocation of its own.
func newCall(s *script, node string, nkeys int, words ...any) *Call {
	c := &Call{script: s, Node: node}
	c.args = append(append(c.room[:0], "evalsha", s.name, nkeys), words...)
	return c
}

// size is how many bytes of the protocol it is, or a few more.
func (c *Call) size() int {
	const word, number = 10, 20 // what frames a word; an integer of the longest
	n := word
	for _, arg := range c.args {
		switch arg := arg.(type) {
		case string:
			n += word + len(arg)
		case *string:
			n += word + len(*arg)
		case []byte:
			n += word + len(arg)
		default:
			n += word + number
		}
	}
	return n
}

// key is the first of its keys.
func (c *Call) key() string { key, _ := c.args[3].(string); return key }

// command makes a fresh command: one that was processed holds its outcome.
func (c *Call) command(ctx context.Context) redis.Cmder {
	if c.mixed {
		c.cmd = onceMixed{redis.NewSliceCmd(ctx, c.args...)}
	} else {
		c.cmd = once{redis.NewIntSliceCmd(ctx, c.args...)}
	}
	return c.cmd
}

// outcome is what the command came to; strings of the reply go into Text.
func (c *Call) outcome() ([]int64, error) {
	switch cmd := c.cmd.(type) {
	case once:
		return cmd.Result()
	case onceMixed:
		all, err := cmd.Result()
		var numbers []int64
		c.Text = nil
		for _, word := range all {
			switch word := word.(type) {
			case int64:
				numbers = append(numbers, word)
			case string:
				c.Text = append(c.Text, word)
			}
		}
		return numbers, err
	}
	return nil, errNotSent
}

var errNotSent = errors.New("the call was not sent")

// inFull switches the call to the script's text, for a server that does not
// know it yet (a fresh one, a new primary, SCRIPT FLUSH); it knows it then.
func (c *Call) inFull() {
	args := append([]any(nil), c.args...)
	args[0], args[1] = "eval", c.script.source
	c.args = args
}

func unknownScript(err error) bool {
	return err != nil && strings.HasPrefix(err.Error(), "NOSCRIPT")
}

// ScriptName tells a script by its SHA1 or its text, for tests and traces: "" is
// none of ours.
func ScriptName(word string) string {
	for name, s := range map[string]*script{
		"enter": &enterScript, "leave": &leaveScript, "ask": &askScript, "renew": &renewScript, "guard set": &guardSetScript,
		"flight enter": &flightEnterScript, "flight ask": &flightAskScript, "flight leave": &flightLeaveScript,
		"flight renew": &flightRenewScript, "flight land": &flightLandScript,
		"flight invalidate": &flightInvalidateScript, "flight inspect": &flightInspectScript,
	} {
		if word == s.sha || word == s.source {
			return name
		}
	}
	return ""
}
