package migration

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/leasehold-go/leasehold/internal/redistest"
)

// The pages' Go code is that of this package, which is compiled and run. A page is one page.
func TestPagesAreShortAndTheirSnippetsAreCompiled(t *testing.T) {
	read := func(name string) string { return string(redistest.Must(os.ReadFile(name))(t)) }
	unindent := func(code string) string { return regexp.MustCompile(`(?m)^\t+`).ReplaceAllString(code, "") }
	code := ""
	for _, name := range redistest.Must(filepath.Glob("*.go"))(t) {
		code += unindent(read(name))
	}
	pages := redistest.Must(filepath.Glob("*.md"))(t)
	redistest.Expect(t, len(pages), 5, "there are %d pages")
	for _, page := range pages {
		text := read(page)
		words := len(strings.Fields(text))
		redistest.Check(t, words <= 650, "%s has %d words; want at most 650", page, words)
		snippets := regexp.MustCompile("(?s)```go\n(.*?)```").FindAllStringSubmatch(text, -1)
		redistest.Check(t, len(snippets) >= 3, "%s has %d snippets; want one of each side, and one of the release between", page, len(snippets))
		for _, s := range snippets {
			redistest.Check(t, strings.Contains(code, unindent(s[1])), "%s: this is nowhere compiled:\n%s", page, s[1])
		}
	}
}
