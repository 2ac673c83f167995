package redistest

import (
	"slices"
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

// sent notes a command that goes to the server.
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
