package top

import (
	"context"
	"time"

	"github.com/gdamore/tcell/v2"
	"github.com/mattn/go-runewidth"

	"github.com/leasehold-go/leasehold/internal/listing"
)

// styles are the looks, in the terminal's own colours.
var styles = map[look]tcell.Style{
	plain:   tcell.StyleDefault,
	title:   tcell.StyleDefault.Bold(true),
	soft:    tcell.StyleDefault.Dim(true),
	use:     tcell.StyleDefault.Foreground(tcell.ColorGreen),
	queue:   tcell.StyleDefault.Foreground(tcell.ColorOlive),
	heads:   tcell.StyleDefault.Dim(true).Underline(true),
	picked:  tcell.StyleDefault.Reverse(true),
	trouble: tcell.StyleDefault.Foreground(tcell.ColorMaroon).Bold(true),
}

// Run shows it until the user quits, or ctx ends.
func Run(ctx context.Context, list *listing.Lister, every time.Duration) error {
	screen, err := tcell.NewScreen()
	if err != nil {
		return err
	}
	if err := screen.Init(); err != nil {
		return err
	}
	defer screen.Fini()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()

	width, height := screen.Size()
	m := model{ctx: ctx, list: list, every: every}
	m, _ = m.update(resized{width, height})
	messages, events, over := make(chan any), make(chan tcell.Event), make(chan struct{})
	defer close(over)
	go screen.ChannelEvents(events, over)
	do := func(c command) {
		if c == nil {
			return
		}
		go func() {
			select {
			case messages <- c():
			case <-over:
			}
		}()
	}
	do(m.load())
	for {
		draw(screen, m.view())
		var msg any
		select {
		case <-ctx.Done():
			return nil
		case msg = <-messages:
		case event := <-events:
			msg = read(event)
		}
		if _, ok := msg.(quit); ok {
			return nil
		}
		if _, ok := msg.(resized); ok {
			screen.Sync()
		}
		var c command
		m, c = m.update(msg)
		do(c)
	}
}

// read makes a message of what the terminal says, nil of what does not matter.
func read(event tcell.Event) any {
	switch event := event.(type) {
	case *tcell.EventResize:
		width, height := event.Size()
		return resized{width, height}
	case *tcell.EventKey:
		if event.Key() == tcell.KeyRune {
			return key(string(event.Rune()))
		}
		return names[event.Key()]
	}
	return nil
}

var names = map[tcell.Key]key{
	tcell.KeyEnter: "enter", tcell.KeyEscape: "esc", tcell.KeyBackspace: "backspace", tcell.KeyBackspace2: "backspace",
	tcell.KeyUp: "up", tcell.KeyDown: "down", tcell.KeyLeft: "left", tcell.KeyRight: "right", tcell.KeyPgUp: "pgup", tcell.KeyPgDn: "pgdown",
	tcell.KeyHome: "home", tcell.KeyEnd: "end", tcell.KeyCtrlC: "ctrl+c", tcell.KeyCtrlU: "ctrl+u",
}

// draw puts lines on the screen; only what differs is sent.
func draw(screen tcell.Screen, lines []line) {
	screen.Clear()
	for y, line := range lines {
		x := 0
		for _, part := range line {
			for _, r := range part.text {
				screen.SetContent(x, y, r, nil, styles[part.look])
				x += runewidth.RuneWidth(r)
			}
		}
	}
	screen.Show()
}
