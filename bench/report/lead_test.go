package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The first section and the README's table are written in the place of those before, and
// the rest of both files stays as it is.
func TestLeadIsWrittenByItself(t *testing.T) {
	docs := filepath.Join(t.TempDir(), "docs")
	if err := os.Mkdir(docs, 0o755); err != nil {
		t.Fatal(err)
	}
	in := read(t, output+networkOutput)
	write := func() error { return WriteLead(docs, in, Figures(in, Rows)) }
	if err := write(); err == nil {
		t.Error("no error where there is no page")
	}
	const before, after = "# Speed\n\n", "\n## All questions\n\nas they were\n"
	for _, f := range []struct{ name, mark string }{{"docs/benchmarks.md", "lead"}, {"README.md", "network"}} {
		text := before + "<!-- " + f.mark + ": begin. -->\nold figures\n<!-- " + f.mark + ": end -->\n" + after
		if err := os.WriteFile(filepath.Join(docs, "..", f.name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 { // what was written can be written again
		if err := write(); err != nil {
			t.Fatal(err)
		}
		for name, want := range map[string][]string{
			"docs/benchmarks.md": {"`network-contended`", "| 0.95 × | ≥ 0.95 × | reached |", "`server-calls`"},
			"README.md":          {"0.95 of what the holding and one round trip allow; 1.90 × redislock's"},
		} {
			text, err := os.ReadFile(filepath.Join(docs, "..", name))
			if err != nil {
				t.Fatal(err)
			}
			got := string(text)
			if !strings.HasPrefix(got, before+"<!-- ") || !strings.HasSuffix(got, " -->\n"+after) {
				t.Errorf("%s changed around the section:\n%s", name, got)
			}
			if strings.Contains(got, "old figures") {
				t.Errorf("%s has the old figures", name)
			}
			for _, w := range want {
				if !strings.Contains(got, w) {
					t.Errorf("%s has no %q:\n%s", name, w, got)
				}
			}
		}
	}
	if err := os.WriteFile(filepath.Join(docs, "benchmarks.md"), []byte("# Speed\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := write(); err == nil {
		t.Error("no error where the page has no such section")
	}
}

const networkOutput = `
pkg: github.com/leasehold-go/leasehold/bench/peers
BenchmarkNetworkContended-2   30   400 floor-turns/s   380 mutex-turns/s   200 redislock-turns/s   190 redsync-turns/s   95 rueidislock-turns/s   1.1 mutex-longest/mean   0.95 mutex-fewest/most
PASS
`
