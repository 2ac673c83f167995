// Package demotest runs an example as a test.
package demotest

import (
	"context"
	"io"
	"strings"
	"testing"
	"unicode/utf8"
)

// Check fails the test where show finds a problem, and where it prints a line
// wider than a terminal of 80 columns. It returns what show prints.
func Check(t testing.TB, show func(ctx context.Context, w io.Writer) (problems []string, err error)) string {
	t.Helper()
	var text strings.Builder
	problems, err := show(t.Context(), &text)
	t.Log("\n" + text.String())
	if err != nil {
		t.Fatal(err)
	}
	for _, problem := range problems {
		t.Error(problem)
	}
	for line := range strings.Lines(text.String()) {
		if utf8.RuneCountInString(strings.TrimSuffix(line, "\n")) > 80 {
			t.Errorf("wider than 80 columns: %q", line)
		}
	}
	return text.String()
}
