package text_test

import (
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/leasehold-go/leasehold/cmd/leasehold/internal/text"
	"github.com/leasehold-go/leasehold/internal/redistest"
)

func TestNamesAreHarmlessOnATerminal(t *testing.T) {
	for name, want := range map[string]string{
		"orders/eu 1":     "orders/eu 1",
		"größe-日本":        "größe-日本",
		"\x1b[31mred":     `\x1b[31mred`,
		"a\nb\tc\x00":     `a\x0ab\x09c\x00`,
		"\u202egnp.exe":   `\u202egnp.exe`,
		"\u009b31m":       `\u009b31m`,
		"\x9b31m":         `\x9b31m`,
		"bad\xff":         `bad\xff`,
		`back\slash`:      `back\\slash`,
		"zero\u200bwidth": `zero\u200bwidth`,
	} {
		redistest.Expect(t, text.Safe(name), want, "%q is shown as %q", name)
	}
}

func TestDurations(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "0µs", 1500 * time.Microsecond: "1ms", 4200 * time.Millisecond: "4.2s", 200 * time.Second: "3m20s",
		310 * time.Minute: "5h10m", 76 * time.Hour: "3d4h", -2 * time.Second: "-2.0s",
	} {
		redistest.Expect(t, text.Duration(d), want, "%d is %q", d)
	}
}

func TestTableKeepsToTheWidth(t *testing.T) {
	out := text.Table([][]string{{"KEY", "USE"}, {strings.Repeat("x", 200), "1"}}, "lr", 0, 40)
	for line := range strings.Lines(out) {
		redistest.AtMost(t, utf8.RuneCountInString(strings.TrimSuffix(line, "\n")), 40, "%q has %d characters", line)
	}
	for line := range strings.Lines(text.Wrap(strings.Repeat("word ", 100), "  ", 30)) {
		redistest.Check(t, len(line) <= 31, "%q is too long", line)
	}
}
