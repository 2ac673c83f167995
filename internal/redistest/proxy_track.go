package redistest

import (
	"slices"
	"strings"
	"sync"
)

// tracker pairs the replies on one connection with their commands and tells them from messages.
type tracker struct {
	mu      sync.Mutex
	pending []pendingCmd
	resp3   bool
	subs    map[string]map[string]bool // by family ("", "p", "s"): the subscribed channels
}

type pendingCmd struct {
	words   []string
	confirm int // confirmations that are still to come, -1 = not known yet
}

// family of a subscription command's name, as of a confirmation's kind, and whether it is one at all.
func family(name string) (prefix string, ok bool) {
	prefix, ok = strings.CutSuffix(strings.ToLower(name), "subscribe")
	prefix = strings.TrimSuffix(prefix, "un")
	return prefix, ok && len(prefix) <= 1
}

func isUnsubscribe(name string) bool { return strings.Contains(strings.ToLower(name), "unsub") }

// sent notes a command that goes to the server.
func (t *tracker) sent(words []string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	cmd := pendingCmd{words: words, confirm: 1}
	if _, ok := family(words[0]); ok {
		cmd.confirm = len(words) - 1
		if cmd.confirm == 0 {
			cmd.confirm = -1 // to all channels: one for each of them
		}
	}
	t.pending = append(t.pending, cmd)
}

// received says what a frame from the server is. It knows nothing of pushes
// that are neither messages nor confirmations: they pass without an event.
func (t *tracker) received(f frame) (ev Event, known bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if f.kind == '>' || f.kind == '*' && !t.resp3 && t.subscribing() {
		switch kind := f.word(0); kind {
		case "message", "smessage":
			return Event{Stage: OnMessage, Channel: f.word(1), Payload: f.word(2)}, true
		case "pmessage":
			return Event{Stage: OnMessage, Channel: f.word(2), Payload: f.word(3)}, true
		default:
			if prefix, ok := family(kind); ok {
				return t.confirmed(prefix, kind, f.word(1))
			}
		}
		if f.kind == '>' {
			return Event{}, false
		}
	}
	return t.replied(f)
}

// subscribing reports whether messages may arrive on a RESP2 connection.
func (t *tracker) subscribing() bool {
	for _, channels := range t.subs {
		if len(channels) > 0 {
			return true
		}
	}
	if len(t.pending) == 0 {
		return false
	}
	_, ok := family(t.pending[0].words[0])
	return ok
}

func (t *tracker) confirmed(prefix, kind, channel string) (Event, bool) {
	before := len(t.subs[prefix])
	if isUnsubscribe(kind) {
		delete(t.subs[prefix], channel)
	} else {
		if t.subs == nil {
			t.subs = map[string]map[string]bool{}
		}
		if t.subs[prefix] == nil {
			t.subs[prefix] = map[string]bool{}
		}
		t.subs[prefix][channel] = true
	}
	if len(t.pending) == 0 || !strings.EqualFold(t.pending[0].words[0], kind) {
		// Nobody asked: a Cluster's node does that when a slot moves away.
		return Event{}, false
	}
	head := &t.pending[0]
	if head.confirm < 0 {
		head.confirm = max(1, before)
	}
	head.confirm--
	ev := Event{Stage: OnReply, Cmd: head.words}
	if head.confirm == 0 {
		t.pending = slices.Delete(t.pending, 0, 1)
	}
	return ev, true
}

func (t *tracker) replied(f frame) (Event, bool) {
	if len(t.pending) == 0 {
		return Event{}, false // such as the refusal of one client too many
	}
	words := t.pending[0].words
	t.pending = slices.Delete(t.pending, 0, 1)
	if f.kind != '-' {
		switch words[0] {
		case "HELLO":
			t.resp3 = f.kind == '%'
		case "RESET":
			t.resp3, t.subs = false, nil
		}
	}
	return Event{Stage: OnReply, Cmd: words}, true
}

// word is an element of an aggregate as text, "" where there is none.
func (v value) word(i int) string {
	if i >= len(v.elems) {
		return ""
	}
	return v.elems[i].text
}
