// Package text writes what comes from Redis so that it is harmless on a terminal,
// and figures so that people can read them.
package text

import (
	"fmt"
	"regexp"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/mattn/go-runewidth"
)

// Safe shows a name of somebody else's choosing: what is no printable character (control bytes, escape sequences,
// marks that change the direction of writing, bytes that are no UTF-8) appears as \x1b, \u202e and so on. A
// backslash is doubled, so that no two names look alike.
func Safe(s string) string {
	if utf8.ValidString(s) && !strings.ContainsFunc(s, func(r rune) bool { return !harmless(r) || r == '\\' }) {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); {
		r, n := utf8.DecodeRuneInString(s[i:])
		switch {
		case r == utf8.RuneError && n == 1:
			fmt.Fprintf(&b, `\x%02x`, s[i])
		case r == '\\':
			b.WriteString(`\\`)
		case harmless(r):
			b.WriteRune(r)
		case r < utf8.RuneSelf: // beyond that \x is a byte that is no UTF-8
			fmt.Fprintf(&b, `\x%02x`, r)
		case r < 0x10000:
			fmt.Fprintf(&b, `\u%04x`, r)
		default:
			fmt.Fprintf(&b, `\U%08x`, r)
		}
		i += n
	}
	return b.String()
}

var plain = regexp.MustCompile(`^[-_./:@0-9A-Za-z]+$`)

// Quoted is a name as a shell takes it.
func Quoted(name string) string {
	if plain.MatchString(name) {
		return name
	}
	safe := Safe(name)
	if strings.ReplaceAll(name, `\`, `\\`) == safe {
		return "'" + strings.ReplaceAll(name, "'", `'\''`) + "'"
	}
	return "$'" + strings.ReplaceAll(safe, "'", `\'`) + "'" // bash and zsh read the escapes
}

// Prose is a message that may hold words of somebody else's choosing. Its lines stay. A line without anything that
// Safe replaces keeps its backslashes as they are.
func Prose(s string) string {
	lines := strings.Split(s, "\n")
	for i, line := range lines {
		if safe := Safe(line); strings.ReplaceAll(safe, `\\`, `\`) != line {
			lines[i] = safe
		}
	}
	return strings.Join(lines, "\n")
}

// harmless says that a character takes a place of its own and does nothing else.
func harmless(r rune) bool {
	return r == ' ' || unicode.IsGraphic(r) && !unicode.IsSpace(r) && !unicode.Is(unicode.Mn, r) && !unicode.Is(unicode.Cf, r)
}

// Duration is short and of one unit, or two: 350ms, 4.2s, 3m20s, 5h10m, 3d4h.
func Duration(d time.Duration) string {
	switch {
	case d < 0:
		return "-" + Duration(-d)
	case d < time.Millisecond:
		return fmt.Sprintf("%dµs", d.Microseconds())
	case d < time.Second:
		return fmt.Sprintf("%dms", d.Milliseconds())
	case d < 10*time.Second:
		return fmt.Sprintf("%.1fs", d.Seconds())
	case d < time.Minute:
		return fmt.Sprintf("%ds", int(d.Seconds()))
	case d < time.Hour:
		return fmt.Sprintf("%dm%02ds", int(d.Minutes()), int(d.Seconds())%60)
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh%02dm", int(d.Hours()), int(d.Minutes())%60)
	}
	return fmt.Sprintf("%dd%dh", int(d.Hours())/24, int(d.Hours())%24)
}

// Bytes is a size: 820 B, 1.2 kB, 3.4 MB.
func Bytes(n int) string {
	switch {
	case n < 1000:
		return fmt.Sprintf("%d B", n)
	case n < 1000*1000:
		return fmt.Sprintf("%.1f kB", float64(n)/1000)
	}
	return fmt.Sprintf("%.1f MB", float64(n)/1e6)
}

// Table writes rows in columns, the first of which are the heads. A column that has nothing
// below its head is left out. sides has an l or an r for each column: where it is aligned.
// width bounds the line where it is not 0: the column `long` is cut for that.
func Table(rows [][]string, sides string, long, width int) string {
	widths := make([]int, len(sides)) // 0: left out
	for i := range widths {
		for j, row := range rows {
			if j > 0 && row[i] != "" {
				widths[i] = max(widths[i], runewidth.StringWidth(row[i]), runewidth.StringWidth(rows[0][i]))
			}
		}
	}
	total := -2
	for _, w := range widths {
		if w > 0 {
			total += w + 2
		}
	}
	if width > 0 && total > width && widths[long] > 0 {
		widths[long] = max(8, widths[long]-(total-width))
	}
	var b strings.Builder
	for _, row := range rows {
		var cells []string
		for i, w := range widths {
			if w == 0 {
				continue
			}
			fill := runewidth.FillRight
			if sides[i] == 'r' {
				fill = runewidth.FillLeft
			}
			cells = append(cells, fill(runewidth.Truncate(row[i], w, "…"), w))
		}
		b.WriteString(strings.TrimRight(strings.Join(cells, "  "), " ") + "\n")
	}
	return b.String()
}

// Wrap breaks prose at words so that lines have at most width characters, each behind indent.
func Wrap(s, indent string, width int) string {
	var b strings.Builder
	line := indent
	for _, word := range strings.Fields(s) {
		if line != indent && runewidth.StringWidth(line+" "+word) > width {
			b.WriteString(line + "\n")
			line = indent
		}
		if line != indent {
			line += " "
		}
		line += word
	}
	return b.String() + line + "\n"
}
