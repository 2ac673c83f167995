package leasehold_test

import (
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/leasehold-go/leasehold/internal/redistest"
)

// The Go code of the documents for users is the code of examples, which are
// compiled and run: a snippet that no example has may not work.
func TestSnippetsAreExamples(t *testing.T) {
	var examples strings.Builder
	for _, pattern := range []string{"*/example*_test.go", "integrations/*/example*_test.go", "integrations/asynqrecipe/*.go", "examples/guide/*.go", "docs/migration/*.go"} {
		for _, name := range glob(t, pattern) {
			text := redistest.Must(os.ReadFile(name))(t)
			examples.WriteString(unindent(string(text)))
		}
	}
	pages := glob(t, "docs/migration/*.md")
	redistest.Expect(t, len(pages), 5, "there are %d pages on migrations")
	for _, name := range append(pages, "README.md", "docs/guide.md", "docs/production.md", "docs/testing.md", "docs/integrations.md") {
		text := redistest.Must(os.ReadFile(name))(t)
		words := len(strings.Fields(string(text)))
		redistest.Check(t, words <= 650 || !slices.Contains(pages, name), "%s has %d words; want a page, at most 650", name, words)
		snippets := regexp.MustCompile("(?s)```go\n(.*?)```").FindAllStringSubmatch(string(text), -1)
		redistest.Check(t, len(snippets) >= 2, "%s has %d snippets; want at least 2", name, len(snippets))
		for _, s := range snippets {
			redistest.Check(t, strings.Contains(examples.String(), unindent(s[1])), "no example has this snippet of %s:\n%s", name, s[1])
			redistest.Check(t, name != "README.md" || strings.HasPrefix(s[1], "import ("), "this snippet of the README has no imports:\n%s", s[1])
		}
	}
}

// A link of a document leads to a file of the module, and to a heading of it.
func TestLinksLeadSomewhere(t *testing.T) {
	documents := slices.Concat(glob(t, "*.md"), glob(t, "docs/*.md"), glob(t, "docs/migration/*.md"))
	checked := 0
	for _, name := range documents {
		text := redistest.Must(os.ReadFile(name))(t)
		for _, link := range regexp.MustCompile(`\]\(([^)\s]+)\)`).FindAllStringSubmatch(string(text), -1) {
			path, heading, _ := strings.Cut(link[1], "#")
			if strings.Contains(path, "://") {
				continue
			}
			checked++
			to := name
			if path != "" {
				to = filepath.Join(filepath.Dir(name), path)
			}
			if _, err := os.Stat(to); err != nil {
				t.Errorf("%s links to %s: %v", name, link[1], err)
				continue
			}
			if heading != "" && !slices.Contains(headings(t, to), heading) {
				t.Errorf("%s links to %s: there is no such heading", name, link[1])
			}
		}
	}
	redistest.CheckNow(t, checked >= 10, "%d links were found in %q", checked, documents)
}

// A test that a document names is there; of a pattern ("TestGarbage*", "TestLateEnter…",
// "-run TestModel") at least one.
func TestNamedTestsExist(t *testing.T) {
	var tests []string
	for _, name := range glob(t, "**_test.go") {
		text := redistest.Must(os.ReadFile(name))(t)
		for _, f := range regexp.MustCompile(`(?m)^func ((?:Test|Fuzz|Benchmark)\w+)\(`).FindAllStringSubmatch(string(text), -1) {
			tests = append(tests, f[1])
		}
	}
	checked := 0
	for _, name := range slices.Concat(glob(t, "README.md"), glob(t, "docs/*.md"), glob(t, "docs/migration/*.md")) {
		text := redistest.Must(os.ReadFile(name))(t)
		for _, named := range regexp.MustCompile(`(-run )?\b((?:Test|Fuzz|Benchmark)[A-Z]\w*)([*…]?)`).FindAllStringSubmatch(string(text), -1) {
			checked++
			pattern := named[1] != "" || named[3] != ""
			if !slices.ContainsFunc(tests, func(test string) bool {
				return test == named[2] || pattern && strings.HasPrefix(test, named[2])
			}) {
				t.Errorf("%s names %s, which no _test.go has", name, named[0])
			}
		}
	}
	redistest.CheckNow(t, checked >= 100, "%d names of tests were found", checked)
}

// headings lists the anchors that GitHub gives to the headings of a document.
func headings(t *testing.T, name string) (anchors []string) {
	t.Helper()
	text := redistest.Must(os.ReadFile(name))(t)
	for _, h := range regexp.MustCompile(`(?m)^#+ (.*)$`).FindAllStringSubmatch(string(text), -1) {
		anchor := regexp.MustCompile(`[^\p{L}\p{N} _-]`).ReplaceAllString(strings.ToLower(h[1]), "")
		anchors = append(anchors, strings.ReplaceAll(anchor, " ", "-"))
	}
	return anchors
}

func unindent(code string) string { return regexp.MustCompile(`(?m)^\t+`).ReplaceAllString(code, "") }

// layer is how far up a package stands; each imports only what is below.
func layer(pkg string) int {
	switch {
	case pkg == "" || pkg == "luascripts" || pkg == "internal/embedded" || pkg == "internal/life":
		return 0
	case pkg == "internal/redistest":
		return 1 // the harness knows nothing of what it tests
	case pkg == "internal/tests/harness":
		return 4
	case strings.HasPrefix(pkg, "internal/tests/"):
		return 5
	case strings.HasPrefix(pkg, "internal/"):
		return 2
	case pkg == "semaphore" || pkg == "mutex" || pkg == "singleflight" || pkg == "leaseholdtest":
		return 3
	case pkg == "multi":
		return 4
	case pkg == "examples/internal/demotest":
		return 5
	case strings.HasPrefix(pkg, "examples/internal/"):
		return 4 // what the examples share
	case strings.HasPrefix(pkg, "integrations/internal/"):
		return 4 // what the adapters share
	case strings.HasPrefix(pkg, "integrations/"):
		return 5
	default: // examples, bench
		return 6
	}
}

// Imports run one way, and the root package imports the standard library only.
func TestImportsRunOneWay(t *testing.T) {
	const module = "github.com/leasehold-go/leasehold"
	seen := 0
	for _, name := range glob(t, "**.go") {
		if name := filepath.ToSlash(name); strings.HasPrefix(name, "robustness/") || strings.HasPrefix(name, "cmd/") {
			continue // modules of their own
		}
		test := strings.HasSuffix(name, "_test.go")
		file := redistest.Must(parser.ParseFile(token.NewFileSet(), name, nil, parser.ImportsOnly))(t)
		from := filepath.ToSlash(filepath.Dir(name))
		if from == "." {
			from = ""
		}
		for _, imp := range file.Imports {
			path := strings.Trim(imp.Path.Value, `"`)
			redistest.Check(t, from != "" || test || !strings.Contains(path, "."),
				"%s imports %s; the root package has the standard library only", name, path)
			to, ours := strings.CutPrefix(path, module)
			if !ours || test {
				continue
			}
			seen++
			to = strings.TrimPrefix(to, "/")
			up, same := layer(to) > layer(from), layer(to) == layer(from)
			redistest.Check(t, !up && (!same || layer(from) == 2 || from == to), "%s imports %s, which is not below it", name, path)
			redistest.Check(t, to != "internal/embedded" || from == "leaseholdtest" || from == "internal/redistest",
				"%s imports the embedded server, which is for tests", name)
			if to == "internal/redistest" && !strings.HasPrefix(from, "bench/internal/") && !strings.HasPrefix(from, "internal/tests/") && from != "integrations/internal/captest" {
				t.Errorf("%s imports the test harness", name)
			}
		}
	}
	redistest.CheckNow(t, seen != 0, "no import was looked at")
}

// glob lists files of the module: "**.go" means all Go files below it.
func glob(t *testing.T, pattern string) []string {
	t.Helper()
	if !strings.HasPrefix(pattern, "**") {
		return redistest.Must(filepath.Glob(pattern))(t)
	}
	var names []string
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && path != "." && strings.HasPrefix(d.Name(), "."):
			return filepath.SkipDir
		case strings.HasSuffix(path, strings.TrimPrefix(pattern, "**")):
			names = append(names, path)
		}
		return nil
	})
	redistest.WantErr(t, err)
	return names
}
