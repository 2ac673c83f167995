package call

import (
	"context"
	"crypto/sha1"
	"encoding/hex"
	"errors"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"
)

// Script is one constant script, and its name to the server.
type Script struct {
	name, source, sha string
	shaWord           any // sha, as an argument of a command
}

// scripts are all that were made, for ScriptName.
var scripts sync.Map // *Script

// NewScript makes a script of source; name is how tests and traces call it.
func NewScript(name, source string) *Script {
	sum := sha1.Sum([]byte(source))
	sha := hex.EncodeToString(sum[:])
	s := &Script{name: name, source: source, sha: sha, shaWord: sha}
	scripts.Store(s, nil)
	return s
}

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
	script *Script
	args   []any // "evalsha", sha, number of keys, keys…, arguments…
	mixed  bool  // answers with strings, too
	cmd    redis.Cmder
	turn   turn // to be sent, in a lane

	// Node names the server that the call is for, so that a batch has one: see
	// Client.Node.
	Node string
	// Done takes the outcome where the call was sent by Send.
	Done func(reply []int64, err error)
	// Text is the strings of the reply, in order, where it has any.
	Text []string

	room [20]any // for args: most calls need no more
}

// New prepares a call of s with nkeys keys and its arguments. Words that are not
// constant are pointers: what they point to stays as it is, and needs no
// allocation of its own.
func New(s *Script, nkeys int, words ...any) *Call {
	c := &Call{script: s}
	c.args = append(append(c.room[:0], "evalsha", s.shaWord, nkeys), words...)
	return c
}

// WithText says that the script's reply has strings, too: they go into Text.
func (c *Call) WithText() *Call {
	c.mixed = true
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

// Key is the first of its keys.
func (c *Call) Key() string { key, _ := c.args[3].(string); return key }

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
func ScriptName(word string) (name string) {
	scripts.Range(func(s, _ any) bool {
		if s := s.(*Script); word == s.sha || word == s.source {
			name = s.name
		}
		return name == ""
	})
	return name
}
