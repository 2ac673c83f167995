package main

import (
	"io"
	"strings"
	"testing"

	"github.com/leasehold-go/leasehold/examples/internal/demo"
	"github.com/leasehold-go/leasehold/examples/internal/demotest"
)

func TestMain(m *testing.M) { demotest.Main(m, program) }

// Real processes, one of them stopped past its TTL, on both databases.
func TestStaleOwnerTouchesNoRow(t *testing.T) {
	demotest.OnEachDatabase(t, func(t *testing.T) { demotest.Check(t, program) })
}

// Without the condition the same story ends in a fault that the verdict sees.
func TestStaleWriteWithoutTheConditionIsAFault(t *testing.T) {
	demotest.OnEachDatabase(t, func(t *testing.T) {
		unfenced := program
		unfenced.Run = func(s *demo.Show) demo.Problems {
			_, db := s.Database()
			plain := round(s, db, "plain")
			return verdict(plain, plain)
		}
		found, err := unfenced.Show(t.Context(), io.Discard)
		problems := strings.Join(found, "\n")
		for _, want := range []string{"was accepted", "after the stale write the balance was 130"} {
			if err != nil || !strings.Contains(problems, want) {
				t.Errorf("%v, and no word of %q in %q", err, want, problems)
			}
		}
	})
}
