package loads

import (
	"strconv"
	"strings"
	"time"

	"github.com/leasehold-go/leasehold/internal/call"
	"github.com/leasehold-go/leasehold/internal/keys"
	"github.com/leasehold-go/leasehold/luascripts"
)

var (
	nearReadScript  = call.NewScript("near read", luascripts.LoadsNearRead())
	nearTellScript  = call.NewScript("near tell", luascripts.LoadsNearTell())
	nearLeaveScript = call.NewScript("near leave", luascripts.LoadsNearLeave())
)

// Near returns the Redis key of the registrations of a resource: the handles that may serve a
// copy of the value from their memory.
func Near(r keys.Resource) string { return r.Part("near") }

// MostReaders is how many readers, and how many keys, one call names.
const MostReaders = 250

// NearRead prepares the call that reads a value and registers the reader, which may serve its
// copy for the time lasts. known is the head of the copy that it has; "": none.
func NearRead(value, near, reader string, lasts time.Duration, known string) *call.Call {
	return call.New(nearReadScript, 2, value, near, reader, call.Milliseconds(lasts), known).WithText()
}

type NearValue struct {
	At         int64  // server time, µs
	Found      bool   // there is a value
	Same       bool   // it is the known one, and is not sent again
	Registered bool   // until its lease ends, an invalidation waits for the reader
	Text       string // the value
}

func ReadNearRead(v []int64, text []string) (NearValue, error) {
	const none, registered, same, refused = 0, 1, 2, 3
	if len(v) != 2 || v[1] < none || v[1] > refused || (v[1] == registered || v[1] == refused) != (len(text) == 1) {
		return NearValue{}, call.Malformed("near read", v)
	}
	r := NearValue{At: v[0], Found: v[1] != none, Same: v[1] == same, Registered: v[1] == registered || v[1] == same}
	if len(text) == 1 {
		r.Text = text[0]
	}
	return r, nil
}

// NearTell prepares the call that tells readers once more to drop their copies, or with no
// number of an acknowledgement only asks which of them are still registered.
func NearTell(near string, ack Acknowledge, readers []string) *call.Call {
	words := make([]any, 0, 3+len(readers))
	words = append(words, near, ack.Number, ack.Handle)
	for _, r := range readers {
		words = append(words, r)
	}
	return call.New(nearTellScript, 1, words...)
}

// ReadNearTell reads the reply to a tell: for each reader, whether it is still registered.
func ReadNearTell(v []int64, readers []string) (registered []bool, err error) {
	if len(v) != 1+len(readers) {
		return nil, call.Malformed("near tell", v)
	}
	for _, is := range v[1:] {
		registered = append(registered, is == 1)
	}
	return registered, nil
}

// NearLeave prepares the call that takes registrations of reader back. drops are all told by the same handle, and
// the call passes on that the reader dropped its copies. If they name no handle, the registrations end, whatever they are.
func NearLeave(reader string, drops []Drop) *call.Call {
	words := make([]any, 0, 2*len(drops)+3)
	var ack strings.Builder
	ack.WriteString("A " + reader)
	for _, d := range drops {
		words = append(words, d.Near)
		ack.WriteString(" " + d.Number)
	}
	words = append(words, reader, drops[0].Handle, ack.String())
	for _, d := range drops {
		words = append(words, d.Score)
	}
	c := call.New(nearLeaveScript, len(drops), words...)
	c.Rank = call.GivesBack
	return c
}

type Drop struct {
	Acknowledge
	Score string // of the registration that the reader had
	Near  string // the Redis key of the registrations
}

// ParseDrop reads "N <number> <score> <handle> <key>".
func ParseDrop(text string) (d Drop, ok bool) {
	words := strings.SplitN(text, " ", 5)
	if len(words) != 5 || words[0] != "N" {
		return Drop{}, false
	}
	if _, err := strconv.ParseUint(words[2], 10, 64); err != nil {
		return Drop{}, false // the script of an acknowledgement compares it as a number
	}
	d = Drop{Acknowledge{words[1], words[3]}, words[2], words[4]}
	return d, d.Number != "" && d.Handle != "" && strings.Contains(d.Near, "}:")
}

// ParseAck reads "A <reader> <number>…", and calls each for each of the numbers.
func ParseAck(text string, each func(reader, number string)) {
	if rest, ok := strings.CutPrefix(text, "A "); ok {
		reader, rest, _ := strings.Cut(rest, " ")
		for number := range strings.SplitSeq(rest, " ") {
			each(reader, number)
		}
	}
}
