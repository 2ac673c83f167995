package redistest

import (
	"strings"
	"testing"
)

func TestSlotMovesLive(t *testing.T) {
	v := Newest(t)
	c := StartPatientCluster(t, v)
	rdb := c.Client()
	for _, key := range []string{"{a}1", "{a}2"} {
		if err := rdb.Set(t.Context(), key, "v", 0).Err(); err != nil {
			t.Fatal(err)
		}
	}
	from, to := c.NodeFor("{a}1"), c.Nodes[0]
	if from.Addr() == to.Addr() {
		to = c.Nodes[1]
	}
	// What the old owner says shows where the move stands.
	direct := from.Client(hasty)
	refusal := func(key string) string {
		err := direct.Get(t.Context(), key).Err()
		if err == nil {
			return ""
		}
		word, _, _ := strings.Cut(err.Error(), " ")
		return word
	}
	m := c.BeginMove("{a}1", to)
	if a, b := refusal("{a}1"), refusal("{a}none"); a != "" || b != "ASK" {
		t.Fatalf("while the slot moves: %q for a key that is here, %q for another", a, b)
	}
	m.MoveKeys()
	if got := refusal("{a}1"); got != "ASK" {
		t.Fatalf("when the keys have moved: %q", got)
	}
	m.Finish()
	if got := refusal("{a}1"); got != "MOVED" {
		t.Fatalf("after the move: %q", got)
	}
	if now := c.NodeFor("{a}1"); now.Addr() != to.Addr() {
		t.Fatalf("%s serves the slot", now.Addr())
	}
	for _, key := range []string{"{a}1", "{a}2"} {
		if got, err := rdb.Get(t.Context(), key).Result(); err != nil || got != "v" {
			t.Fatalf("%s is %q, %v", key, got, err)
		}
	}
}
