package main

import (
	"testing"

	"github.com/leasehold-go/leasehold/examples/internal/demotest"
)

func TestMain(m *testing.M) { demotest.Main(m, program) }

func TestNothingIsLostAndNobodyGivesUp(t *testing.T) { demotest.Check(t, program) }

func TestVerdictFindsFault(t *testing.T) {
	demotest.FindsFault(t, verdict, func() []result {
		return []result{
			{way: oneByOne, moved: processes * transfers, gaveUp: 7, stock: 2 * stock},
			{way: atOnce, moved: processes * transfers, stock: 2 * stock},
		}
	}, map[string]func([]result){
		"transfers were made": func(all []result) { all[0].moved-- },
		"the stock is":        func(all []result) { all[1].stock-- },
		"gave up":             func(all []result) { all[1].gaveUp++ },
	})
}
