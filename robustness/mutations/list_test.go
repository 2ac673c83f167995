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
		if err := m.testsExist("../.."); err != nil {
			t.Errorf("%s: %v", m.name, err)
		}
		text, err := os.ReadFile(filepath.Join("../..", filepath.FromSlash(m.file)))
		if err != nil {
			t.Errorf("%s: %v", m.name, err)
			continue
		}
		if n := strings.Count(string(text), m.old); n != 1 || m.old == m.new {
			t.Errorf("%s: what is to be taken out of %s is there %d times", m.name, m.file, n)
		}
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
