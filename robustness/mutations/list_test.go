package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/leasehold-go/leasehold/internal/redistest"
)

// A mutation that no longer applies guards nothing.
func TestMutationsApply(t *testing.T) {
	names := map[string]bool{}
	for _, m := range mutations {
		redistest.Check(t, !names[m.name], "%s: there are two of that name", m.name)
		names[m.name] = true
		redistest.Expect(t, m.testsExist("../.."), nil, "%s: %v", m.name)
		text, err := os.ReadFile(filepath.Join("../..", filepath.FromSlash(m.file)))
		if err != nil {
			t.Errorf("%s: %v", m.name, err)
			continue
		}
		n := strings.Count(string(text), m.old)
		redistest.Check(t, n == 1 && m.old != m.new, "%s: what is to be taken out of %s is there %d times", m.name, m.file, n)
	}
}
