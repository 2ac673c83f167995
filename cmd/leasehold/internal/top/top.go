// Package top is a listing that moves: keys by use, queue and longest wait, and
// the holders and waiters of one of them.
package top

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/leasehold-go/leasehold/cmd/leasehold/internal/text"
	"github.com/leasehold-go/leasehold/internal/listing"
)

// orders are the ways to sort, in the order in which a key walks through them.
var orders = []string{"attention", "wait", "use", "name", "held"}

// model is all that is shown.
type model struct {
	ctx   context.Context
	list  *listing.Lister
	every time.Duration

	width, height int // of the terminal; of the rows

	known   []listing.Use
	ready   bool
	scanned time.Time
	took    time.Duration
	err     error

	order     int
	idle      bool // also keys on which nothing happens
	filter    string
	filtering bool // the filter is being written
	chosen    listing.Resource
	at        int // where chosen is among the rows
	from      int // the first row that is shown

	open   *listing.Resource
	state  *listing.State // of open, once it is there
	scroll int
}

// command is what is done beside; what it returns is given to update.
type command func() any

// quit ends it all.
type quit struct{}

// resized is a new size of the terminal.
type resized struct{ width, height int }

// key is a key that was pressed: "enter", "up", or the character.
type key string

// frame is how many lines are no rows: title, heads, and the line of keys.
const frame = 4

// update takes keys and what was loaded.
func (m model) update(msg any) (model, command) {
	switch msg := msg.(type) {
	case resized:
		m.width, m.height = msg.width, max(1, msg.height-frame)
		return m.settled(), nil
	case loaded:
		return m.take(msg), m.later()
	case opened:
		if m.open != nil && msg.Resource == *m.open {
			m.state = msg.State
		}
		return m.settled(), nil
	case tick:
		return m, m.load()
	case key:
		switch {
		case msg == "ctrl+c":
			return m, func() any { return quit{} }
		case m.filtering:
			return m.write(msg), nil
		case m.open != nil:
			return m.inside(msg)
		}
		return m.press(msg)
	}
	return m, nil
}

// write takes a key while the filter is written.
func (m model) write(k key) model {
	switch k {
	case "enter":
		m.filtering = false
	case "esc":
		m.filtering, m.filter = false, ""
	case "backspace":
		if r := []rune(m.filter); len(r) > 0 {
			m.filter = string(r[:len(r)-1])
		}
	case "ctrl+u":
		m.filter = ""
	default:
		if utf8.RuneCountInString(string(k)) == 1 {
			m.filter += string(k)
		}
	}
	m.at = 0
	m.chosen = listing.Resource{}
	return m.settled()
}

// press takes a key of the list.
func (m model) press(k key) (model, command) {
	switch k {
	case "q":
		return m, func() any { return quit{} }
	case "esc":
		m.filter = ""
	case "/":
		m.filtering = true
	case "s":
		m.order = (m.order + 1) % len(orders)
	case "i":
		m.idle = !m.idle
	case "up", "k":
		return m.move(-1), nil
	case "down", "j":
		return m.move(1), nil
	case "pgup", "b":
		return m.move(-m.height), nil
	case "pgdown", " ", "f":
		return m.move(m.height), nil
	case "home", "g":
		return m.move(-len(m.known)), nil
	case "end", "G":
		return m.move(len(m.known)), nil
	case "enter", "right", "l":
		if rows := m.rows(); m.at < len(rows) {
			r := rows[m.at].Resource
			m.open, m.state, m.scroll = &r, nil, 0
			return m, m.detail()
		}
	}
	return m.settled(), nil
}

// detail reads what was opened at once, rather than with the next look.
func (m model) detail() command {
	r := *m.open
	return func() any {
		ctx, cancel := context.WithTimeout(m.ctx, patience)
		defer cancel()
		s, err := m.list.State(ctx, r, listing.Bounds{Entries: 5000})
		if err != nil && err != listing.ErrTooMany {
			return nil // the next look says so
		}
		return opened{&s}
	}
}

// opened is the state of a key that was just opened.
type opened struct{ *listing.State }

// inside takes a key while holders and waiters of one key are shown.
func (m model) inside(k key) (model, command) {
	switch k {
	case "q":
		return m, func() any { return quit{} }
	case "esc", "left", "h", "enter", "backspace":
		m.open, m.state = nil, nil
	case "up", "k":
		m.scroll--
	case "down", "j":
		m.scroll++
	case "pgup", "b":
		m.scroll -= m.height
	case "pgdown", " ", "f":
		m.scroll += m.height
	case "home", "g":
		m.scroll = 0
	case "end", "G":
		m.scroll = 1 << 30
	}
	return m.settled(), nil
}

func (m model) move(by int) model {
	rows := m.rows()
	if len(rows) == 0 {
		return m
	}
	m.at = min(max(m.at+by, 0), len(rows)-1)
	m.chosen = rows[m.at].Resource
	return m.settled()
}

// settled finds the chosen key where the rows have it now, and brings it into
// sight.
func (m model) settled() model {
	rows := m.rows()
	if i := slices.IndexFunc(rows, func(u listing.Use) bool { return u.Resource == m.chosen }); i >= 0 {
		m.at = i
	}
	m.at = max(0, min(m.at, len(rows)-1))
	if len(rows) > 0 && m.chosen == (listing.Resource{}) && m.at > 0 {
		m.chosen = rows[m.at].Resource
	}
	m.from = min(m.from, m.at)
	m.from = max(m.from, m.at-m.height+1, 0)
	m.from = max(0, min(m.from, len(rows)-m.height))
	m.scroll = max(0, min(m.scroll, len(m.entries())-m.height))
	return m
}

// rows are the keys that are shown, in their order.
func (m model) rows() []listing.Use {
	var rows []listing.Use
	words := strings.Fields(strings.ToLower(m.filter))
	for _, u := range m.known {
		if u.Idle() && !m.idle {
			continue
		}
		name := strings.ToLower(kindWords[u.Kind] + " " + text.Safe(u.Family) + "/" + text.Safe(u.Key))
		if slices.ContainsFunc(words, func(w string) bool { return !strings.Contains(name, w) }) {
			continue
		}
		rows = append(rows, u)
	}
	slices.SortStableFunc(rows, func(a, b listing.Use) int {
		wait, waiting, use := cmp.Compare(b.LongestWait, a.LongestWait), cmp.Compare(b.Waiting, a.Waiting), cmp.Compare(b.InUse, a.InUse)
		switch orders[m.order] {
		case "wait":
			return cmp.Or(wait, waiting)
		case "use":
			return cmp.Or(use, waiting)
		case "held":
			return cmp.Compare(b.HeldFor, a.HeldFor)
		case "name":
			return 0
		}
		return cmp.Or(listing.CompareHanging(a, b), waiting, use)
	})
	return rows
}
