package top

import (
	"context"
	"fmt"
	"html"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gdamore/tcell/v2"

	"github.com/leasehold-go/leasehold/cmd/leasehold/internal/demo"
	"github.com/leasehold-go/leasehold/internal/redistest"
)

// The pictures of the documentation: a terminal that looks at the demo's fleet.
func TestPictures(t *testing.T) {
	dir := os.Getenv("LEASEHOLD_SCREENSHOTS")
	if dir == "" {
		t.Skip("set LEASEHOLD_SCREENSHOTS to a folder")
	}
	rdb := redistest.StartServer(t, redistest.Newest(t)).Client()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- demo.Run(ctx, rdb, demo.Options{Hosts: 4, Pace: 1}) }()
	defer func() {
		cancel()
		redistest.WantErr(t, <-done)
	}()
	x := opened(t, rdb, "", 100, 26)
	time.Sleep(25 * time.Second) // until the holder hangs that is to
	x.has("HELD", "backup", " !")
	redistest.WantErr(t, os.MkdirAll(dir, 0o755))
	x.draw(filepath.Join(dir, "top.svg"))
}

// draw draws the terminal, each word at its place, whatever the font's widths are.
func (x *terminal) draw(path string) {
	const wide, high, margin = 8.4, 18.0, 16.0
	paint := map[tcell.Color]string{tcell.ColorMaroon: "#f0806b", tcell.ColorOlive: "#e0b04e"}
	x.mu.Lock()
	defer x.mu.Unlock()
	var b strings.Builder
	w, h := float64(x.width)*wide+2*margin, float64(len(x.cells)/x.width)*high+2*margin
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %.0f %.0f" font-family="ui-monospace, DejaVu Sans Mono, Menlo, Consolas, monospace" font-size="14">`, w, h)
	fmt.Fprintf(&b, `<rect width="%.0f" height="%.0f" rx="8" fill="#141816"/>`+"\n", w, h)
	for from := 0; from < len(x.cells); {
		to := from
		for to < len(x.cells) && to/x.width == from/x.width && x.cells[to].Style == x.cells[from].Style && string(x.cells[to].Runes) != " " {
			to++
		}
		fg, _, how := x.cells[from].Style.Decompose()
		colour := paint[fg]
		switch {
		case how&tcell.AttrReverse != 0:
			colour = "#141816"
		case colour == "" && how&tcell.AttrDim != 0:
			colour = "#93a39b"
		case colour == "":
			colour = "#e3eae6"
		}
		left, top := margin+float64(from%x.width)*wide, margin+float64(from/x.width)*high
		if how&tcell.AttrReverse != 0 {
			fmt.Fprintf(&b, `<rect x="%.1f" y="%.1f" width="%.1f" height="%.0f" fill="#e3eae6"/>`+"\n", left, top, float64(max(1, to-from))*wide+.5, high)
		}
		word := ""
		for _, c := range x.cells[from:to] {
			word += string(c.Runes)
		}
		if word != "" {
			fmt.Fprintf(&b, `<text x="%.1f" y="%.1f" fill="%s" textLength="%.1f">%s</text>`+"\n", left, top+high-4, colour, float64(to-from)*wide, html.EscapeString(word))
		}
		from = max(to, from+1)
	}
	b.WriteString("</svg>\n")
	redistest.WantErr(x.t, os.WriteFile(path, []byte(b.String()), 0o644))
}
