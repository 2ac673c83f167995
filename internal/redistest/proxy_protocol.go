package redistest

import (
	"bufio"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// tracker pairs the replies on one connection with their commands and tells them from messages. It knows RESP3,
// which go-redis speaks: whatever is no reply to a command is a push.
type tracker struct {
	mu      sync.Mutex
	pending []pendingCmd
}

type pendingCmd struct {
	words   []string
	answers int // that are still to come: a subscription is confirmed once for each channel
}

func (t *tracker) sent(words []string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	cmd := pendingCmd{words, 1}
	if strings.HasSuffix(words[0], "SUBSCRIBE") {
		cmd.answers = len(words) - 1
	}
	t.pending = append(t.pending, cmd)
}

// received says what a frame from the server is. Pushes that are neither messages nor confirmations pass without
// an event: a Cluster's node ends a subscription unasked when a slot moves away.
func (t *tracker) received(f frame) (ev Event, known bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	push := f.kind == '>' && len(f.words) > 0
	if push && slices.Contains([]string{"message", "smessage", "pmessage"}, f.words[0]) {
		return Event{Stage: OnMessage}, true
	}
	if len(t.pending) == 0 { // such as the refusal of one client too many
		return Event{}, false
	}
	head := &t.pending[0]
	if push && !strings.EqualFold(head.words[0], f.words[0]) {
		return Event{}, false
	}
	ev = Event{Stage: OnReply, Cmd: head.words}
	if head.answers--; head.answers <= 0 || !push {
		t.pending = slices.Delete(t.pending, 0, 1)
	}
	return ev, true
}

// frame is one value of the Redis protocol, as far as the proxy has to understand it.
type frame struct {
	kind  byte
	text  string   // of what isn't an aggregate; a verbatim string keeps its prefix
	words []string // the texts of an aggregate's elements, of a map its keys and values in turn
	raw   []byte   // the bytes that it came in
}

// maxLength is the longest string that Redis itself takes. It also bounds the elements of an aggregate here.
const maxLength = 512 << 20

func readFrame(r *bufio.Reader) (f frame, err error) {
	if f.raw, err = r.ReadBytes('\n'); err != nil {
		return f, err
	}
	line, ended := strings.CutSuffix(string(f.raw), "\r\n")
	if !ended || line == "" {
		return f, fmt.Errorf("bad line %q", f.raw)
	}
	f.kind, f.text = line[0], line[1:]
	if strings.IndexByte("+-:_,#(", f.kind) >= 0 {
		return f, nil
	}
	n, err := strconv.Atoi(f.text)
	if f.text = ""; err != nil || n < -1 || n > maxLength {
		return f, fmt.Errorf("bad length in %q", line)
	}
	switch f.kind {
	case '$', '=', '!':
		if n < 0 {
			return f, nil
		}
		text := make([]byte, n+2)
		_, err = io.ReadFull(r, text)
		f.text, f.raw = string(text[:n]), append(f.raw, text...)
		return f, err
	case '%':
		n *= 2
	case '*', '~', '>':
	default:
		return f, fmt.Errorf("a value can't begin with %q", f.kind)
	}
	for range n {
		element, err := readFrame(r)
		if f.raw = append(f.raw, element.raw...); err != nil {
			return f, err
		}
		f.words = append(f.words, element.text)
	}
	return f, nil
}

// readCommand reads what a client sends: an array of bulk strings, or a line of words.
func readCommand(r *bufio.Reader) (words []string, raw []byte, err error) {
	if first, err := r.Peek(1); err != nil {
		return nil, nil, err
	} else if first[0] != '*' {
		line, err := r.ReadString('\n')
		return strings.Fields(line), []byte(line), err
	}
	f, err := readFrame(r)
	return f.words, f.raw, err
}
