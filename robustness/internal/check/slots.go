package check

import (
	"github.com/leasehold-go/leasehold/robustness/internal/history"
)

// slots checks that a slot of DoOnce is completed once, that nothing runs after that, and that it is called
// complete only after a run that succeeded. Slots that the server may have forgotten are left out.
func (r *Report) slots(h *history.History) {
	for _, key := range keysOf(h, history.Once) {
		var calls, runs []*history.Operation
		of := map[string]*history.Operation{} // by name
		for _, o := range h.Ops {
			switch {
			case o.Key != key:
			case o.Op == history.Once:
				calls = append(calls, o)
				of[name(o)] = o
			case o.Op == history.Run:
				runs = append(runs, o)
			}
		}
		if len(calls) == 0 || h.Forgotten(key, calls[0].At, history.Forever) < history.Forever {
			continue
		}
		r.Slots++
		var complete *history.Operation // the first that said so
		for _, o := range calls {
			if !o.Succeeded() {
				continue
			}
			if complete == nil || o.Return < complete.Return {
				complete = o
			}
			for _, other := range calls {
				if o.Ran && other.Ran && other.Succeeded() && other.At > o.At {
					r.bad("slot", key, "%s and %s both completed it", name(o), name(other))
				}
			}
		}
		if complete == nil {
			continue
		}
		may := false // somebody may have completed it before that
		for _, run := range runs {
			if run.At > complete.Return {
				r.bad("slot", key, "%s began after %s had said that it is complete", name(run), name(complete))
			}
			call := of[history.Name(run.Worker, run.For)]
			may = may || run.Succeeded() && run.Return < complete.Return && (call.Return == history.Forever || call.Class == history.OK || call.Class == history.Unavailable)
		}
		if !may {
			r.bad("slot", key, "%s says that it is complete, and no run has succeeded", name(complete))
		}
	}
}
