package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A mutation that no longer applies guards nothing.
func TestMutationsApply(t *testing.T) {
	names := map[string]bool{}
	for _, m := range mutations {
		if names[m.name] {
			t.Errorf("%s: there are two of that name", m.name)
		}
		names[m.name] = true
		text, err := os.ReadFile(filepath.Join("../..", filepath.FromSlash(m.file)))
		if err != nil {
			t.Fatal(err)
		}
		if n := strings.Count(string(text), m.old); n != 1 || m.old == m.new {
			t.Errorf("%s: what is to be taken out of %s is there %d times", m.name, m.file, n)
		}
	}
}

// A mutant whose scripts can't be written out is not left for the mutations after it.
func TestMutantThatCannotBeWrittenOutIsPutBack(t *testing.T) {
	work := t.TempDir() // without a module, so that go generate fails
	script := filepath.Join(work, "x.lua")
	if err := os.WriteFile(script, []byte("guard()"), 0o644); err != nil {
		t.Fatal(err)
	}
	by, err := mutation{file: "x.lua", old: "guard()", new: ""}.try(work)
	if by != "" || err == nil || !strings.Contains(err.Error(), "go generate") {
		t.Errorf("%q, %v", by, err)
	}
	if text, err := os.ReadFile(script); err != nil || string(text) != "guard()" {
		t.Errorf("the file has %q, %v", text, err)
	}
}

func TestPackagesOfNestedModules(t *testing.T) {
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	for pkg, want := range map[string][2]string{
		"./internal/lease":                    {".", "./internal/lease"},
		"./cmd/leasehold":                     {"cmd/leasehold", "./"},
		"./cmd/leasehold/internal/cli":        {"cmd/leasehold", "./internal/cli"},
		"./internal/tests/contract/semaphore": {".", "./internal/tests/contract/semaphore"},
	} {
		folder, within := moduleOf(root, pkg)
		if folder != filepath.Join(root, want[0]) || within != want[1] {
			t.Errorf("%s: %s in %s, want %s in %s", pkg, within, folder, want[1], want[0])
		}
	}
}
