package check

import (
	"fmt"
	"slices"
	"strings"

	"github.com/anishathalye/porcupine"

	"github.com/leasehold-go/leasehold/robustness/internal/history"
)

// cacheStep is one step of a cached value. Each invalidation begins a generation; what may be read is what
// was begun to be loaded in the present one, at some moment of the reading call.
type cacheStep struct {
	what string // "load", "read", "invalidate", "maybe invalidate", "revive"
	load string
}

func (s cacheStep) String() string { return strings.TrimSpace(s.what + " " + s.load) }

type cacheState struct {
	loads   string // begun in this generation
	revived bool   // an older state of the server came back: any value may be there
}

func cacheModel() porcupine.NondeterministicModel {
	return porcupine.NondeterministicModel{
		Init: func() []any { return []any{cacheState{}} },
		Step: func(state, input, _ any) []any {
			was, s := state.(cacheState), input.(cacheStep)
			switch s.what {
			case "load":
				return []any{cacheState{was.loads + s.load + " ", was.revived}}
			case "read":
				if !was.revived && !slices.Contains(strings.Fields(was.loads), s.load) {
					return nil
				}
				return []any{was}
			case "maybe invalidate":
				return []any{was, cacheState{}}
			case "revive":
				return []any{cacheState{was.loads, true}}
			}
			return []any{cacheState{}}
		},
		DescribeOperation: func(input, _ any) string { return input.(cacheStep).String() },
		DescribeState: func(state any) string {
			s := state.(cacheState)
			return fmt.Sprintf("loads of this generation: %s (revived: %v)", s.loads, s.revived)
		},
	}
}

func cacheOps(h *history.History, key string) []porcupine.Operation {
	var ops []porcupine.Operation
	read := map[string]bool{}
	for _, o := range h.Ops {
		switch {
		case o.Op == history.Read && o.Values[key] != "":
			ops = append(ops, porcupine.Operation{Input: cacheStep{"read", o.Values[key]}, Call: o.At, Return: o.Return})
			read[o.Values[key]] = true
		case o.Op == history.Invalidate && slices.Contains(o.Keys, key):
			s, till := cacheStep{what: "invalidate"}, o.Return
			if !o.Succeeded() {
				s.what, till = "maybe invalidate", history.Forever
			}
			ops = append(ops, porcupine.Operation{Input: s, Call: o.At, Return: till})
		}
	}
	for _, o := range h.Ops {
		if o.Op == history.Load && o.Key == key && read[name(o)] {
			ops = append(ops, porcupine.Operation{Input: cacheStep{"load", name(o)}, Call: o.At, Return: o.At})
		}
	}
	for _, l := range h.Losses {
		if l.Revives && (l.Key == "" || l.Key == key) {
			ops = append(ops, porcupine.Operation{Input: cacheStep{what: "revive"}, Call: l.From, Return: l.To})
		}
	}
	return ops
}
