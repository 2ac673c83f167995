package totals_test

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// cell is one key of Redis: a sorted set, a hash or a stream. It is there as long as it holds
// something and its time has not come.
type cell struct {
	name    string
	scores  map[string]float64
	texts   map[string]string // of a hash, else nil
	entries []string          // of a stream: see auditEntry
	until   int64             // ms
	clock   bool              // its scores are times (ms)
}

func newCells() []*cell {
	var all []*cell
	for _, name := range parts {
		c := &cell{name: name, scores: map[string]float64{}, clock: name == "holders" || name == "alive"}
		if name == "limits" || name == "revoked" {
			c.texts = map[string]string{}
		}
		all = append(all, c)
	}
	return all
}

func (c *cell) exists() bool { return len(c.scores) > 0 || len(c.texts) > 0 || len(c.entries) > 0 }

func (c *cell) clear() {
	clear(c.scores)
	clear(c.texts)
	c.entries = nil
	c.until = 0
}

// drop removes members, and the key with the last of them.
func (c *cell) drop(members ...string) (n int) {
	for _, m := range members {
		if c.has(m) {
			delete(c.scores, m)
			n++
		}
	}
	if !c.exists() {
		c.clear()
	}
	return n
}

func (c *cell) has(m string) bool { _, ok := c.scores[m]; return ok }

// keep makes what is there live until at, and never shorter than it did.
func (c *cell) keep(at int64) {
	if c.exists() {
		c.until = max(c.until, at)
	}
}

// expire makes what is there live until at.
func (c *cell) expire(at int64) {
	if c.exists() {
		c.until = at
	}
}

// between is the members by score, where that lies between from and to.
func (c *cell) between(from, to float64) []string {
	var all []string
	for m, s := range c.scores {
		if s >= from && s <= to {
			all = append(all, m)
		}
	}
	slices.SortFunc(all, func(a, b string) int {
		return cmp.Or(cmp.Compare(c.scores[a], c.scores[b]), strings.Compare(a, b))
	})
	return all
}

// of is the members of a key, in their order.
func (c *cell) of(key string) []string {
	var all []string
	for m := range c.scores {
		if strings.HasPrefix(m, key+":") {
			all = append(all, m)
		}
	}
	slices.Sort(all)
	return all
}

func (c *cell) clone() *cell {
	d := *c
	d.scores, d.texts, d.entries = maps.Clone(c.scores), maps.Clone(c.texts), slices.Clone(c.entries)
	return &d
}

// String is how the key is compared.
func (c *cell) String() string {
	if !c.exists() {
		return "-"
	}
	var b strings.Builder
	for _, m := range c.between(-forever, forever) {
		fmt.Fprintf(&b, "%s=%.17g ", m, c.scores[m])
	}
	for _, m := range slices.Sorted(maps.Keys(c.texts)) {
		fmt.Fprintf(&b, "%q=%s ", m, c.texts[m])
	}
	for _, e := range c.entries {
		fmt.Fprintf(&b, "%q ", e)
	}
	return fmt.Sprintf("%suntil %d", &b, c.until)
}

const forever = 1e300

func described(cells []*cell) (s string) {
	for _, c := range cells {
		s += fmt.Sprintf("\n    %-8s %v", c.name, c)
	}
	return s
}
