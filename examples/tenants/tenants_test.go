package main

import (
	"os"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/examples/internal/demotest"
)

func TestMain(m *testing.M) { demotest.Main(m, program) }

func TestModestTenantsAreLetInAtTheirTurn(t *testing.T) {
	if os.Getenv("LEASEHOLD_REQUIRE_SERVERS") == "" {
		t.Skip("it takes 20 s: make test runs it")
	}
	demotest.Check(t, program)
}

// good is a plain queue in which 40 requests pass each modest one, and a fair phase.
func good() []*phase {
	at := func(ms int) time.Time { return time.UnixMilli(int64(ms)) }
	plain := &phase{name: "plain", total: total, limited: limit, tenants: map[string]*tenant{}}
	fair := &phase{name: "fair", total: total, limited: limit, tenants: map[string]*tenant{}}
	for i, name := range tenants {
		p, f := new(tenant), new(tenant)
		for n := range 50 {
			begin := 1000 * n
			if !isModest(name) {
				p.served = append(p.served, answer{at(begin), at(begin + 100), at(begin + 200)})
				f.served = append(f.served, answer{at(begin), at(begin + 10), at(begin + 20)})
			} else if n >= 45 {
				p.served = append(p.served, answer{at(begin - 40_000), at(begin + 300), at(begin + 400)})
				f.served = append(f.served, answer{at(begin), at(begin + 30 + i), at(begin + 32 + i)})
			}
		}
		plain.tenants[name], fair.tenants[name] = p, f
	}
	return []*phase{plain, fair}
}

func TestVerdictFindsFault(t *testing.T) {
	crowd := func(p *phase, n int, names ...string) {
		for _, name := range names {
			for range n {
				p.tenants[name].served = append(p.tenants[name].served, p.tenants[tenants[0]].served[0])
			}
		}
	}
	demotest.FindsFault(t, verdict, good, map[string]func([]*phase){
		"the total is 8": func(p []*phase) { crowd(p[1], 3, "modest-1", "modest-2", "modest-3") },
		"its limit is 4": func(p []*phase) { crowd(p[1], 4, "greedy-1") },
		"its limit is 2": func(p []*phase) { p[1].limited = 2; crowd(p[1], 2, "greedy-1") },
		"were refused":   func(p []*phase) { p[1].tenants["modest-1"].refused = 1 },
		"failed":         func(p []*phase) { p[1].tenants["greedy-1"].failed = 1 },
		"did not fill":   func(p []*phase) { p[0].tenants = p[1].tenants },
		"were served": func(p []*phase) {
			for _, name := range tenants[2:7] {
				p[1].tenants[name] = new(tenant)
			}
		},
		"two turns are 16": func(p []*phase) { p[1].tenants = p[0].tenants },
	})
}
