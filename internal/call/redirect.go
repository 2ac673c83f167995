package call

import (
	"strings"
	"time"
)

// An asked is a slot of a Cluster that is moving: its node says for some keys that another node has them (ASK). go-redis
// asks there within the same round trip, so all calls that share it wait for the other node, which may hang, while
// the first one is well. So the keys of such a slot are those of a server apart (see link.Node), with a queue, a clock
// and a breaker of its own. All slots that move from one node to another share it.
//
// When the server of a key changes, a call may overtake an earlier one in the old queue. That is no new case: a queue
// makes several round trips at once, and a call that hangs is repeated beside it. Scripts know the owner that they have
// served, and do nothing once they are void. Calls that need an order are sent as one: see Call.behind.
type asked struct {
	from, name string // the keys are at name while the topology says from
	until      time.Time
}

// askedFor is how long an ASK counts. Each one is followed by others while keys are asked for.
const askedFor = 30 * time.Second

// asks notes whether err, an answer, sends the command on to another node, before the client library asks there.
func (t *tally) asks(err error) {
	if err == nil || t.link.cluster == nil {
		return
	}
	words := strings.Fields(serverError(Harmless(err)))
	t.sentOn.Store(len(words) == 3 && (words[0] == "ASK" || words[0] == "MOVED"))
	if !t.sentOn.Load() || words[0] == "MOVED" {
		return
	}
	node := t.link.primary(t.key)
	if node == nil {
		return
	}
	from := node.addr()
	_, had := t.link.asked.Swap(slot(t.key), &asked{from, from + " to " + words[2], time.Now().Add(askedFor)})
	if !had {
		t.link.asking.Add(1)
	}
}

// apart returns the name of the server that has key, which is at node as far as the topology says.
func (c *link) apart(node, key string) string {
	if c.asking.Load() == 0 {
		return node
	}
	at := slot(key)
	known, _ := c.asked.Load(at)
	a, ok := known.(*asked)
	if ok && a.from == node && time.Now().Before(a.until) {
		return a.name
	}
	if ok && c.asked.CompareAndDelete(at, known) {
		c.asking.Add(-1)
	}
	return node
}

// slot returns the slot of key.
func slot(key string) (crc uint16) {
	if _, tag, ok := strings.Cut(key, "{"); ok {
		if tag, _, ok = strings.Cut(tag, "}"); ok && tag != "" {
			key = tag
		}
	}
	for i := range len(key) {
		crc ^= uint16(key[i]) << 8
		for range 8 {
			crc = crc<<1 ^ crc>>15*0x1021
		}
	}
	return crc % 16384
}
