// Package top is a listing that moves: keys by use, queue and longest wait, and
// the holders and waiters of one of them.
package top

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/gdamore/tcell/v2"
	"github.com/rivo/tview"

	"github.com/leasehold-go/leasehold/cmd/leasehold/internal/text"
	"github.com/leasehold-go/leasehold/cmd/leasehold/internal/watch"
	"github.com/leasehold-go/leasehold/internal/listing"
)

const (
	leastScan = 5 * time.Second // between two looks for keys that came or went
	scanShare = 200             // a look may take that part of the time, at most
	patience  = 20 * time.Second
)

const (
	listHelp = "q quit  enter open  / filter  s sort  i idle  ↑↓ move"
	keyHelp  = "q quit  esc back  ↑↓ scroll"
)

// top is all that is shown. Its fields belong to the goroutine of the screen.
type top struct {
	tview.TableContentReadOnly
	app  *tview.Application
	quit context.CancelFunc
	poke chan struct{} // it is to look at once

	head, foot, entries *tview.TextView // entries: the holders and waiters of the open key
	table               *tview.Table
	filter              *tview.InputField
	body, bottom        *tview.Pages
	width               int

	keys   watch.Keys
	rows   []listing.Use // those that are shown, in their order
	usual  func(listing.Resource) time.Duration
	err    error
	order  int
	idle   bool             // also keys on which nothing happens
	chosen listing.Resource // by the user; none: the first row, whatever it is
	open   *listing.Resource
}

// Run shows it until the user quits, or ctx ends. A nil screen is the terminal.
func Run(ctx context.Context, list *listing.Lister, every time.Duration, screen tcell.Screen) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	t := newTop(list, cancel)
	if screen != nil {
		t.app.SetScreen(screen)
	}
	go func() {
		// Nothing may be queued for a screen that is gone: it goes after the last look.
		defer t.app.Stop()
		for ctx.Err() == nil {
			t.look(ctx)
			select {
			case <-time.After(every):
			case <-t.poke:
			case <-ctx.Done():
			}
		}
	}()
	return t.app.Run()
}

func newTop(list *listing.Lister, quit context.CancelFunc) *top {
	// The colours are the terminal's own, so that they suit a light and a dark one.
	tview.Styles = tview.Theme{}
	t := &top{
		keys: watch.Keys{List: list}, app: tview.NewApplication(), quit: quit, poke: make(chan struct{}, 1),
		head: tview.NewTextView().SetTextStyle(tcell.StyleDefault.Bold(true)).SetWrap(false), foot: tview.NewTextView().SetTextStyle(soft).SetWrap(false),
		entries: tview.NewTextView().SetWrap(false), filter: tview.NewInputField().SetLabel("filter: "),
	}
	t.usual = t.keys.Usual()
	t.table = tview.NewTable().SetFixed(1, 0).SetSelectable(true, false).SetSeparator(' ').SetSelectedStyle(tcell.StyleDefault.Reverse(true)).SetContent(t)
	t.table.SetSelectionChangedFunc(func(row, _ int) {
		if row > 0 && row <= len(t.rows) {
			t.chosen = t.rows[row-1].Resource
		}
	})
	t.table.SetSelectedFunc(func(row, _ int) {
		if row > 0 && row <= len(t.rows) {
			t.show(&t.rows[row-1].Resource)
		}
	})
	t.filter.SetChangedFunc(func(string) { t.chosen = listing.Resource{}; t.settle() })
	t.filter.SetDoneFunc(func(key tcell.Key) {
		if key == tcell.KeyEscape {
			t.filter.SetText("")
		}
		t.bottom.SwitchToPage("help")
		t.app.SetFocus(t.table)
	})
	t.body = tview.NewPages().AddPage("key", t.entries, true, true).AddAndSwitchToPage("list", t.table, true)
	t.bottom = tview.NewPages().AddPage("filter", t.filter, true, true).AddAndSwitchToPage("help", t.foot, true)
	t.app.SetRoot(tview.NewFlex().SetDirection(tview.FlexRow).AddItem(t.head, 1, 0, false).AddItem(t.body, 0, 1, true).AddItem(t.bottom, 1, 0, false), true)
	t.app.SetInputCapture(t.press)
	t.app.SetBeforeDrawFunc(func(screen tcell.Screen) bool {
		t.width, _ = screen.Size()
		return false
	})
	t.settle()
	return t
}

func (t *top) press(e *tcell.EventKey) *tcell.EventKey {
	switch k := e.Rune(); {
	case e.Key() == tcell.KeyCtrlC, k == 'q' && !t.filter.HasFocus():
		t.quit()
		return nil
	case t.filter.HasFocus():
		return e
	case t.open != nil && (e.Key() == tcell.KeyEscape || e.Key() == tcell.KeyLeft || e.Key() == tcell.KeyEnter):
		t.show(nil)
		return nil
	case t.open != nil:
		return e
	case e.Key() == tcell.KeyEscape:
		t.filter.SetText("")
	case k == '/':
		t.bottom.SwitchToPage("filter")
		t.app.SetFocus(t.filter)
		return nil
	case k == 's':
		t.order = (t.order + 1) % len(listing.Orders)
	case k == 'i':
		t.idle = !t.idle
	default:
		return e
	}
	t.settle()
	return nil
}

// show opens a key, or with nil goes back to the list.
func (t *top) show(r *listing.Resource) {
	t.open = r
	if r == nil {
		t.body.SwitchToPage("list")
		t.settle()
		return
	}
	opened := *r // the rows change
	t.open = &opened
	t.head.SetText(text.Kind(r.Kind) + " " + text.Title(*r))
	t.foot.SetText(keyHelp)
	t.entries.SetText("reading …").ScrollToBeginning()
	t.body.SwitchToPage("key")
	select {
	case t.poke <- struct{}{}:
	default:
	}
}

// look looks at Redis: for all keys where it is time for that, else at those that are shown.
func (t *top) look(ctx context.Context) {
	var some []listing.Resource
	var scan bool
	var open *listing.Resource
	t.app.QueueUpdate(func() {
		open, scan = t.open, time.Since(t.keys.Scanned) >= max(leastScan, scanShare*t.keys.Took)
		from, _ := t.table.GetOffset()
		_, _, _, height := t.table.GetInnerRect()
		for _, u := range t.rows[min(from, len(t.rows)):min(from+height, len(t.rows))] {
			some = append(some, u.Resource)
		}
	})
	// A call that hangs must not keep the user from quitting.
	found := make(chan func(), 1)
	go func() { found <- t.read(ctx, scan, some, open) }()
	select {
	case take := <-found:
		t.app.QueueUpdateDraw(take)
	case <-ctx.Done():
	}
}

// read returns what is to be done with what it read.
func (t *top) read(ctx context.Context, scan bool, some []listing.Resource, open *listing.Resource) (take func()) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	var state listing.State
	known, err := t.keys.Read(ctx, scan, some)
	if err == nil && open != nil {
		if state, err = t.keys.List.State(ctx, *open, listing.Bounds{Entries: 5000}); errors.Is(err, listing.ErrTooMany) {
			err = nil
		}
	}
	return func() {
		if t.err = err; err == nil {
			known()
			t.usual = t.keys.Usual()
			if open != nil && t.open != nil && *open == *t.open {
				words := text.Summary(state, t.usual(state.Resource)) + "\n"
				if state.Value != nil {
					words += text.Value(state.Value) + "\n"
				}
				t.entries.SetText(words + text.Entries(state, t.width))
			}
		}
		t.settle()
	}
}

// settle finds the rows, and the chosen key among them.
func (t *top) settle() {
	t.rows = nil
	for _, u := range t.keys.Known {
		if (t.idle || !u.Idle()) && text.Matches(u.Resource, t.filter.GetText()) {
			t.rows = append(t.rows, u)
		}
	}
	listing.SortUses(t.rows, listing.Orders[t.order])
	chosen := t.chosen
	at := slices.IndexFunc(t.rows, func(u listing.Use) bool { return u.Resource == chosen })
	if at < 0 && chosen != (listing.Resource{}) { // it is gone: the next one takes its place
		row, _ := t.table.GetSelection()
		at = min(row, len(t.rows)) - 1
	}
	t.table.Select(max(0, at)+1, 0)
	t.chosen = chosen
	if t.open == nil {
		words := fmt.Sprintf("leasehold  %d of %d keys, by %s", len(t.rows), len(t.keys.Known), listing.Orders[t.order])
		if t.filter.GetText() != "" {
			words += ", with " + text.Safe(t.filter.GetText())
		}
		switch {
		case t.keys.Scanned.IsZero():
			words = "leasehold  looking at all keys …"
		case len(t.rows) == 0:
			words = "leasehold  nothing is held, waited for or cached: i shows idle keys, too"
		default:
			words += fmt.Sprintf(", scanned %d s ago", int(time.Since(t.keys.Scanned).Seconds()))
		}
		t.head.SetText(words)
		t.foot.SetText(listHelp)
	}
	t.foot.SetTextStyle(soft)
	if t.err != nil {
		t.foot.SetTextStyle(trouble).SetText("Redis tells nothing new: " + text.Safe(t.err.Error()))
	}
}

var (
	soft    = tcell.StyleDefault.Dim(true)
	queue   = tcell.StyleDefault.Foreground(tcell.ColorOlive)
	trouble = tcell.StyleDefault.Foreground(tcell.ColorMaroon).Bold(true)
)

// columns are those of text.Row that have room.
func (t *top) columns() []int {
	switch {
	case t.width < 60:
		return []int{2, 3, 4, 6}
	case t.width < 100:
		return []int{0, 1, 2, 3, 4, 6, 7}
	}
	return []int{0, 1, 2, 3, 4, 5, 6, 7, 8}
}

// GetRowCount, GetColumnCount and GetCell are the table's content.
func (t *top) GetRowCount() int    { return len(t.rows) + 1 }
func (t *top) GetColumnCount() int { return len(t.columns()) }

func (t *top) GetCell(row, column int) *tview.TableCell {
	columns := t.columns()
	if row > len(t.rows) || column >= len(columns) {
		return nil
	}
	column = columns[column]
	c := tview.NewTableCell(text.Heads[column]).SetSelectable(false).SetStyle(soft.Underline(true))
	if row > 0 {
		u := t.rows[row-1]
		style := tcell.StyleDefault
		switch {
		case u.Overlong:
			style = trouble
		case u.Waiting > 0:
			style = queue
		case u.InUse == 0:
			style = soft
		}
		c = tview.NewTableCell(tview.Escape(text.Row(u, t.usual(u.Resource))[column])).SetStyle(style)
	}
	if text.Sides[column] == 'r' {
		c.SetAlign(tview.AlignRight)
	}
	if column == 2 {
		c.SetExpansion(1)
	}
	if column <= 2 { // names leave room for figures and the note
		c.SetMaxWidth(max(9, (t.width-44-30*(len(columns)/9))/2))
	}
	return c
}
