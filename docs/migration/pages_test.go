package migration

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// The pages' Go code is that of this package, which is compiled and run.
func TestSnippetsOfThePagesAreCompiled(t *testing.T) {
	var code strings.Builder
	for _, name := range glob(t, "*.go") {
		code.WriteString(unindent(read(t, name)))
	}
	pages := glob(t, "*.md")
	if len(pages) != 5 {
		t.Errorf("there are %d pages; want 5", len(pages))
	}
	for _, page := range pages {
		snippets := regexp.MustCompile("(?s)```go\n(.*?)```").FindAllStringSubmatch(read(t, page), -1)
		if len(snippets) < 3 {
			t.Errorf("%s has %d snippets; want one of each side, and one of the release between", page, len(snippets))
		}
		for _, s := range snippets {
			if !strings.Contains(code.String(), unindent(s[1])) {
				t.Errorf("%s: this is nowhere compiled:\n%s", page, s[1])
			}
		}
	}
}

// A page is one page.
func TestPagesAreShort(t *testing.T) {
	for _, page := range glob(t, "*.md") {
		if words := len(strings.Fields(read(t, page))); words > 650 {
			t.Errorf("%s has %d words; want at most 650", page, words)
		}
	}
}

func glob(t *testing.T, pattern string) []string {
	t.Helper()
	names, err := filepath.Glob(pattern)
	if err != nil {
		t.Fatal(err)
	}
	return names
}

func read(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func unindent(code string) string { return regexp.MustCompile(`(?m)^\t+`).ReplaceAllString(code, "") }
