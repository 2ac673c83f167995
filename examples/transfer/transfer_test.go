package main

import (
	"os"
	"strings"
	"testing"

	"github.com/leasehold-go/leasehold/examples/internal/demotest"
)

func TestMain(m *testing.M) {
	program.RunIfChild()
	os.Exit(m.Run())
}

func TestNothingIsLostAndNobodyGivesUp(t *testing.T) {
	t.Setenv("REDIS_URL", "")
	demotest.Check(t, program.Show)
}

// The verdict must find fault with each of these.
func TestVerdictFindsFault(t *testing.T) {
	good := func() []result {
		return []result{
			{way: oneByOne, moved: processes * transfers, gaveUp: 7, stock: 2 * stock},
			{way: atOnce, moved: processes * transfers, stock: 2 * stock},
		}
	}
	if problems := verdict(good()); len(problems) > 0 {
		t.Fatalf("fault is found with a good run: %q", problems)
	}
	for want, spoil := range map[string]func(all []result){
		"transfers were made": func(all []result) { all[0].moved-- },
		"the stock is":        func(all []result) { all[1].stock-- },
		"gave up":             func(all []result) { all[1].gaveUp++ },
	} {
		all := good()
		spoil(all)
		if problems := strings.Join(verdict(all), "\n"); !strings.Contains(problems, want) {
			t.Errorf("no word of %q in %q", want, problems)
		}
	}
}
