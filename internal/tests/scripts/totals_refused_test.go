package scripts_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/leasehold-go/leasehold/internal/redistest"
)

// A key of a wrong type ends each script with an error before anything was changed.
func TestWrongTypesChangeNothing(t *testing.T) {
	for _, wrong := range parts {
		t.Run(wrong, func(t *testing.T) {
			eachDesk(t, 2, func(t *testing.T, d *desk) {
				d.enter("k", 1, 2, 1)
				d.enter("k", 1, 2, 1)
				d.enter("k", 1, 2, 1)
				d.rdb.Set(t.Context(), d.part(wrong), "another program's", 0)
				before := d.dump()
				member := fmt.Sprintf("k:%s.99.2.60000.2.1.2", d.handle)
				waiter := ""
				for _, a := range d.waiting {
					waiter = a.member
				}
				now := d.rdb.Time(t.Context()).Val()
				calls := map[string][]any{
					"enter": {member, 2, 60_000, 2, 2, 0, "0 0 0"}, "ask": {d.handle, 2, waiter},
					"set":    {"k", 1, d.handle, now.UnixMicro(), 2},
					"revoke": {waiter, "aaaaaaaa-3", "a test", 2},
				}
				if wrong == "revoked" || wrong == "audit" { // which no other script has
					calls = map[string][]any{"revoke": calls["revoke"]}
				}
				for script, args := range calls {
					v, err := scripts[script].Run(t.Context(), d.rdb, d.names, args...).Result()
					redistest.Check(t, err != nil && strings.Contains(err.Error(), "WRONGTYPE"), "%s answered %v, %v; want WRONGTYPE", script, v, err)
					redistest.Expect(t, d.dump(), before, "%s changed\n%s\nto\n%s", script, before)
				}
			})
		})
	}
}

// dump is what the keys hold, as text.
func (d *desk) dump() string {
	var all []string
	for i, name := range d.names {
		text := ""
		switch kind := d.rdb.Type(d.Context(), name).Val(); kind {
		case "zset":
			for _, z := range d.rdb.ZRangeWithScores(d.Context(), name, 0, -1).Val() {
				if parts[i] == "alive" {
					z.Score = 0 // signs of life come all the time
				}
				text += fmt.Sprintf(" %v=%.3f", z.Member, z.Score)
			}
		case "hash":
			text = fmt.Sprint(d.rdb.HGetAll(d.Context(), name).Val())
		default:
			text = kind
		}
		all = append(all, parts[i]+":"+text)
	}
	return strings.Join(all, "\n")
}
