package top

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/leasehold-go/leasehold/cmd/leasehold/internal/text"
	"github.com/leasehold-go/leasehold/internal/keys"
	"github.com/leasehold-go/leasehold/internal/listing"
)

var kindWords = map[keys.Kind]string{keys.Mutex: "lock", keys.Semaphore: "permits", keys.Flight: "cache", keys.Guard: "guard"}

// look is how a text is shown. The colours are the terminal's own, so that they
// suit a light and a dark one.
type look int

const (
	plain  look = iota
	title       // bold
	soft        // what matters less
	use         // what is in use
	queue       // where somebody waits
	heads       // of columns
	picked      // the chosen line
	trouble
)

// span is a part of a line.
type span struct {
	text string
	look look
}

// line is a line of the screen.
type line []span

func of(l look, s string) line { return line{{s, l}} }

// view is the whole screen.
func (m model) view() []line {
	if m.open != nil {
		return m.details()
	}
	return m.outside()
}

// outside is the list of keys.
func (m model) outside() []line {
	rows := m.rows()
	lines := []line{m.title(len(rows)), nil}
	if !m.ready && m.err == nil {
		lines[1] = of(soft, "Looking at all keys …")
		return m.framed(lines, "q quit")
	}
	c := m.columns()
	lines[1] = of(heads, c.line([]string{"", "KEY", "IN USE", "", "HELD", "WAITING", "LONGEST", "NOTE"}))
	if len(rows) == 0 {
		lines = append(lines, of(soft, text.Cut("Nothing is held, waited for or cached: i shows idle keys, too.", m.width)))
	}
	for i := m.from; i < min(m.from+m.height, len(rows)); i++ {
		lines = append(lines, m.row(c, rows[i], i == m.at))
	}
	return m.framed(lines, "↑↓ move  enter open  / filter  s sort  i idle  q quit")
}

// framed fills the screen up to its last line, which says which keys there are.
func (m model) framed(lines []line, help string) []line {
	for len(lines) < m.height+frame-1 {
		lines = append(lines, nil)
	}
	last := of(soft, text.Cut(help, m.width))
	if m.err != nil {
		last = of(trouble, text.Cut("Redis does not answer: "+text.Safe(m.err.Error()), m.width))
	} else if m.filtering {
		last = of(plain, text.Cut("filter: "+text.Safe(m.filter)+"█  (enter keeps it, esc drops it)", m.width))
	}
	return append(lines[:m.height+frame-1], last)
}

func (m model) title(shown int) line {
	words := fmt.Sprintf("%d of %d keys, by %s", shown, len(m.known), orders[m.order])
	if m.filter != "" && !m.filtering {
		words += ", with " + text.Safe(m.filter)
	}
	if !m.scanned.IsZero() {
		words += fmt.Sprintf(", scanned %d s ago", int(time.Since(m.scanned).Seconds()))
	}
	return line{{"leasehold", title}, {"  " + text.Cut(words, max(0, m.width-11)), soft}}
}

// columns are the widths of a line: kind, key, use, bar, held, waiting, longest, note.
type columns [8]int

func (m model) columns() columns {
	c := columns{7, 0, 9, 0, 8, 7, 8, 0}
	if m.width < 60 {
		c[0], c[6] = 0, 0
	}
	if m.width >= 100 {
		c[3] = 12
	}
	if m.width >= 72 {
		c[7] = max(0, m.width/4)
	}
	used := 0
	for _, w := range c {
		if w > 0 {
			used += w + 1
		}
	}
	c[1] = max(8, m.width-used-1)
	return c
}

// line puts cells into the columns; figures go to the right.
func (c columns) line(cells []string) string {
	var b strings.Builder
	for i, w := range c {
		if w == 0 {
			continue
		}
		cell := text.Cut(cells[i], w)
		pad := strings.Repeat(" ", w-text.Width(cell))
		if b.Len() > 0 {
			b.WriteByte(' ')
		}
		if i == 2 || i >= 4 && i <= 6 {
			b.WriteString(pad + cell)
		} else {
			b.WriteString(cell + pad)
		}
	}
	return b.String()
}

func (m model) row(c columns, u listing.Use, chosen bool) line {
	waiting, longest := "", ""
	if u.Waiting > 0 {
		waiting = strconv.Itoa(u.Waiting)
	}
	if u.LongestWait > 0 {
		longest = text.Duration(u.LongestWait)
	}
	words := c.line([]string{kindWords[u.Kind], text.Safe(u.Family) + "/" + text.Name(u.Resource), text.InUse(u), bar(u, c[3]), text.Held(u.HeldFor, u.Overlong), waiting, longest, note(u)})
	switch {
	case chosen:
		return of(picked, words)
	case u.Overlong:
		return of(trouble, words)
	case u.Waiting > 0:
		return of(queue, words)
	case u.InUse > 0:
		return of(plain, words)
	}
	return of(soft, words)
}

func bar(u listing.Use, width int) string {
	if width == 0 || u.Limit <= 0 || u.Kind == keys.Guard || u.Kind == keys.Flight && !u.Whole {
		return ""
	}
	full := min(width, (u.InUse*width+u.Limit-1)/u.Limit)
	return strings.Repeat("━", full) + strings.Repeat("╌", width-full)
}

func note(u listing.Use) string {
	switch {
	case u.Err != nil:
		return text.Safe(u.Err.Error())
	case u.Value != nil && u.Value.FreshFor > 0:
		return text.Bytes(u.Value.Bytes) + ", fresh " + text.Duration(u.Value.FreshFor)
	case u.Value != nil:
		return text.Bytes(u.Value.Bytes) + ", stale"
	case u.FailedFor > 0:
		return "failure remembered"
	case u.Overlong:
		return "held past 10 TTLs"
	case u.Stored:
		return "limit set by hand"
	}
	return ""
}

// details is the holders and waiters of one key.
func (m model) details() []line {
	head := of(title, text.Cut(kindWords[m.open.Kind]+" "+text.Safe(m.open.Family)+"/"+text.Name(*m.open), m.width))
	if m.state == nil {
		return m.framed([]line{head, of(soft, "reading …")}, "esc back  q quit")
	}
	s := m.state
	words := fmt.Sprintf("%d in use", s.InUse)
	limit := s.Limit
	if s.HasTotal && s.Key == "" {
		limit = s.Total
	}
	if limit > 0 {
		words = fmt.Sprintf("%d of %d in use", s.InUse, limit)
	}
	if s.Kind == keys.Guard {
		words = "writes with a token below " + strconv.FormatUint(s.Token, 10) + " are refused"
	} else if s.Token > 0 {
		words += ", last token " + strconv.FormatUint(s.Token, 10)
	}
	if len(s.Waiters) > 0 {
		words += fmt.Sprintf(", %d waiting", len(s.Waiters))
	}
	if v := s.Value; v != nil {
		words += ", " + note(listing.Use{Value: v})
	}
	lines := []line{head, of(use, text.Cut(words, m.width)), nil}
	all := m.entries()
	lines = append(lines, all[min(m.scroll, len(all)):min(m.scroll+m.height, len(all))]...)
	return m.framed(lines, "↑↓ scroll  esc back  q quit")
}

// entries are the lines of holders and waiters.
func (m model) entries() []line {
	if m.state == nil {
		return nil
	}
	var lines []line
	table := func(rows [][]string, how look) {
		right := map[int]bool{2: true, 3: true, 4: true}
		if !slices.ContainsFunc(rows[1:], func(row []string) bool { return row[1] != "" }) { // nobody says where
			for i, row := range rows {
				rows[i] = append(row[:1:1], row[2:]...)
			}
			right = map[int]bool{1: true, 2: true, 3: true}
		}
		for i, words := range strings.Split(strings.TrimSuffix(text.Table(rows, right, 1, m.width), "\n"), "\n") {
			if words = text.Cut(words, m.width); i == 0 {
				lines = append(lines, of(heads, words))
			} else {
				lines = append(lines, of(how, words))
			}
		}
	}
	if hs := m.state.Holders; len(hs) > 0 {
		rows := [][]string{{"HOLDER", "WHERE", "PERMITS", "HELD FOR", "ENDS IN"}}
		for _, h := range hs {
			where := strings.TrimSpace(text.Safe(h.Tenant) + " " + text.Safe(h.Label))
			if h.Aside {
				where = strings.TrimSpace(where + " (invalidated)")
			}
			rows = append(rows, []string{text.Safe(h.ID), where, strconv.Itoa(h.Permits), text.Held(m.state.At.Sub(h.Since), h.Overlong(m.state.At)), text.Duration(h.ExpiresIn)})
		}
		table(rows, plain)
	} else {
		lines = append(lines, of(soft, "Nobody holds it."))
	}
	if ws := m.state.Waiters; len(ws) > 0 {
		lines = append(lines, nil)
		rows := [][]string{{"WAITER", "WHERE", "PERMITS", "PLACE", "WAITING"}}
		for _, w := range ws {
			rows = append(rows, []string{text.Safe(w.ID), strings.TrimSpace(text.Safe(w.Tenant) + " " + text.Safe(w.Label)), strconv.Itoa(w.Permits), strconv.Itoa(w.Position), text.Duration(w.WaitingFor)})
		}
		table(rows, queue)
	}
	return lines
}
