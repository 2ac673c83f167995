package singleflight_test

import (
	"time"

	"github.com/redis/go-redis/v9"
)

// stall holds up commands of these names, of all names where there are none, until
// heal.
func (w *wire) stall(names ...string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.gates = gates(names)
}

// unstall lets go what stall holds up.
func (w *wire) unstall() {
	w.mu.Lock()
	defer w.mu.Unlock()
	open(w.gates)
	w.gates = nil
}

func open(gates map[string]chan struct{}) {
	for _, gate := range gates {
		select {
		case <-gate:
		default:
			close(gate) // of several names
		}
	}
}

// stallReplies holds up their replies.
func (w *wire) stallReplies(names ...string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.locks = gates(names)
}

// holdDials holds up new connections until heal: who has a connection for commands
// can then not subscribe.
func (w *wire) holdDials() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.gates = gates([]string{"dial"})
}

func gates(names []string) map[string]chan struct{} {
	if len(names) == 0 {
		names = []string{""}
	}
	gate, all := make(chan struct{}), map[string]chan struct{}{}
	for _, n := range names {
		all[n] = gate
	}
	return all
}

// at waits at the gate that one of the commands has to wait at, no longer than a
// client waits for an answer.
func (w *wire) at(cmds []redis.Cmder, gates func() map[string]chan struct{}) error {
	w.mu.Lock()
	gate := gates()[""]
	for _, c := range cmds {
		if g := gates()[commandName(c)]; g != nil {
			gate = g
		}
	}
	w.mu.Unlock()
	if gate == nil {
		return nil
	}
	select {
	case <-gate:
		return nil
	case <-time.After(3 * time.Second):
		return errSilent
	}
}
