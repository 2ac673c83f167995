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

	"github.com/mattn/go-runewidth"
	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold/cmd/leasehold/internal/demo"
	"github.com/leasehold-go/leasehold/internal/listing"
	"github.com/leasehold-go/leasehold/internal/redistest"
)

// The pictures of the documentation: terminals that look at the demo's fleet.
func TestPictures(t *testing.T) {
	dir := os.Getenv("LEASEHOLD_SCREENSHOTS")
	if dir == "" {
		t.Skip("set LEASEHOLD_SCREENSHOTS to a folder")
	}
	rdb := redis.NewClient(&redis.Options{Addr: redistest.StartServer(t, redistest.Newest(t)).Addr()})
	defer rdb.Close()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- demo.Run(ctx, rdb, demo.Options{Hosts: 4, Keys: 150, Pace: 1}) }()
	defer func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}()
	time.Sleep(8 * time.Second) // queues form
	for name, size := range map[string][2]int{"top": {80, 24}, "top-wide": {140, 40}} {
		m := model{ctx: t.Context(), list: listing.New(rdb, ""), every: time.Second}
		m, _ = m.update(resized{size[0], size[1]})
		m, _ = m.update(m.load()())
		shoot(t, filepath.Join(dir, name+".svg"), m.view(), size[0])
		m = press(m, "enter")
		m, _ = m.update(m.load()())
		if m.state == nil {
			t.Fatal("no key opens")
		}
		shoot(t, filepath.Join(dir, name+"-key.svg"), m.view(), size[0])
	}
}

// colours are what a dark terminal makes of the looks.
var colours = map[look]string{
	plain: "#e3eae6", title: "#ffffff", soft: "#93a39b", use: "#6fc58f", queue: "#e0b04e", heads: "#93a39b", picked: "#141816", trouble: "#f0806b",
}

// shoot draws the lines as a terminal of so many columns.
func shoot(t *testing.T, path string, lines []line, columns int) {
	t.Helper()
	const wide, high, margin = 8.4, 18.0, 16.0
	var b strings.Builder
	w, h := float64(columns)*wide+2*margin, float64(len(lines))*high+margin+2*high
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %.0f %.0f" font-family="ui-monospace, DejaVu Sans Mono, Menlo, Consolas, monospace" font-size="14">`, w, h)
	fmt.Fprintf(&b, `<rect width="%.0f" height="%.0f" rx="8" fill="#141816"/><g fill="#3a4640"><circle cx="18" cy="16" r="5"/><circle cx="36" cy="16" r="5"/><circle cx="54" cy="16" r="5"/></g>`+"\n", w, h)
	for y, line := range lines {
		x, base := 0, 2*high+float64(y)*high+8
		for _, part := range line {
			cells := runewidth.StringWidth(part.text)
			at := margin + float64(x)*wide
			if part.look == picked {
				fmt.Fprintf(&b, `<rect x="%.1f" y="%.1f" width="%.1f" height="%.0f" fill="#e3eae6"/>`+"\n", at, base-high+4, float64(cells)*wide, high)
			}
			if part.look == heads {
				fmt.Fprintf(&b, `<line x1="%.1f" x2="%.1f" y1="%.1f" y2="%.1f" stroke="#93a39b"/>`+"\n", at, at+float64(cells)*wide, base+4, base+4)
			}
			// Each word has its place, whatever the font's widths are.
			word, from := "", 0
			flush := func(to int) {
				if word != "" {
					weight := ""
					if part.look == title || part.look == trouble {
						weight = ` font-weight="bold"`
					}
					fmt.Fprintf(&b, `<text x="%.1f" y="%.1f" fill="%s" textLength="%.1f"%s>%s</text>`+"\n", margin+float64(from)*wide, base, colours[part.look], float64(to-from)*wide, weight, html.EscapeString(word))
				}
				word, from = "", to
			}
			for _, r := range part.text {
				n := runewidth.RuneWidth(r)
				if r == ' ' {
					flush(x)
					x++
					from = x
					continue
				}
				word += string(r)
				x += n
			}
			flush(x)
		}
	}
	b.WriteString("</svg>\n")
	if err := os.WriteFile(path, []byte(b.String()), 0o644); err != nil {
		t.Fatal(err)
	}
}
