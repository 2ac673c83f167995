package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestPage(t *testing.T) {
	dir := t.TempDir()
	stale := filepath.Join(dir, "bench", "growth.svg")
	if err := os.MkdirAll(filepath.Dir(stale), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(stale, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	in := read(t, output+"BenchmarkManyKeys/goroutines=1-2 3 1.00 mutex-µs 2.00 redislock-µs\n")
	if err := WritePage(dir, in, Figures(in, Rows)); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(dir, "benchmarks.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"Some CPU, 2 processors", "redis-7.0.15", "go not told",
		"| 15 µs (10–21) | ≤ 12 µs | **not reached** |", // lone-floor
		"| 20 | ≤ 24 | reached |",                       // lone-allocs
		"| **not measured** |",
		"## What falls short", "(bench/many.svg)",
	} {
		if !strings.Contains(string(text), want) {
			t.Errorf("the page has no %q", want)
		}
	}
	// What wasn't measured has no picture, and none of an earlier run.
	if strings.Contains(string(text), "growth.svg") {
		t.Error("the page shows a picture that was not drawn")
	}
	if _, err := os.Stat(stale); !os.IsNotExist(err) {
		t.Errorf("a picture of an earlier run is left: %v", err)
	}
	// Each picture that is shown is there.
	for _, part := range strings.Split(string(text), "](")[1:] {
		name, _, _ := strings.Cut(part, ")")
		if svg, err := os.ReadFile(filepath.Join(dir, name)); err != nil || !strings.Contains(string(svg), "</svg>") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if strings.Contains(string(text), "\n\n\n") {
		t.Error("the page has gaps")
	}
}
