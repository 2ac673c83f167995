package check

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/robustness/internal/history"
)

const ms = int64(time.Millisecond)

// story builds a history of statements with semicolons between. Its times are ms.
//
//	w1 lock 0-1 token=7 =a    w1 called Lock at 0, which returned at 1; a is its name from here on
//	w1 unlock 10- for=a       it called Unlock of that lease, which did not return
//	w1 ended 900 for=a        that lease's Context ended
//	- forget 5-6 key=m0       the server forgot the leases of m0
//	=> model, cap, stale=1    what came before breaks these rules and no others, with this figure
//
// Operations have usual keys: s0, m0, c0 or o0/1. A lease lasts for another 900 ms by itself.
type story struct {
	t      *testing.T
	terms  history.Terms
	events []history.Event
	last   int
	named  map[string]history.Event
}

func newStory(t *testing.T) *story {
	return &story{t: t, terms: history.Terms{Limit: 2, TTL: time.Second}, named: map[string]history.Event{}}
}

func (s *story) tell(text string) {
	s.t.Helper()
	for statement := range strings.SplitSeq(text, ";") {
		statement = strings.TrimSpace(statement)
		rules, judges := strings.CutPrefix(statement, "=>")
		switch words := strings.Fields(statement); {
		case judges:
			s.is(rules)
		case len(words) > 0:
			s.say(words[0], words[1], words[2], words[3:])
		}
	}
}

var usualKeys = map[string]string{
	history.Acquire: "s0", history.Release: "s0", history.Lock: "m0", history.Unlock: "m0", history.Write: "m0", history.Inspect: "m0",
	history.Revoke: "m0", history.Load: "c0", history.Once: "o0/1", history.Run: "o0/1",
}

// say adds a call and its return, or a moment.
func (s *story) say(worker, what, span string, details []string) {
	begin, end, _ := strings.Cut(span, "-")
	from, to := number(s.t, begin), int64(0)
	call := history.Event{Kind: history.Kind(what), Worker: worker, At: from * ms}
	if end != "" {
		to = number(s.t, end)
		call.Until = to * ms
	}
	ret := history.Event{Kind: history.Return, Worker: worker, At: to * ms}
	switch what {
	case history.Read, history.Invalidate:
		call.Kind, call.Op, call.Keys = history.Call, what, []string{"c0"}
	default:
		if key, is := usualKeys[what]; is {
			call.Kind, call.Op, call.Key, call.Deadline, ret.Deadline = history.Call, what, key, (from+900)*ms, (to+900)*ms
		}
	}
	if what == history.Acquire {
		call.Permits = 1
	}
	if call.Kind == history.Call {
		s.last++
		call.ID, ret.ID, call.Until = s.last, s.last, 0
	}
	for _, detail := range details {
		s.detail(detail, &call, &ret)
	}
	s.events = append(s.events, call)
	if call.Kind == history.Call && end != "" {
		s.events = append(s.events, ret)
	}
	if ret.Ran { // for as long as the call, less a ms at each end
		run := []string{"for=once"}
		if s.named["once"] = call; ret.Class == history.LoadFailed {
			run = append(run, "class=load_failed")
		}
		s.say(worker, history.Run, fmt.Sprintf("%d-%d", from+1, to-1), run)
	}
}

func (s *story) detail(text string, call, ret *history.Event) {
	name, value, _ := strings.Cut(text, "=")
	of := s.named[value]
	switch name {
	case "":
		s.named[value] = *call
	case "key":
		call.Key = value
	case "n":
		call.Permits = int(number(s.t, value))
	case "token":
		call.Token = uint64(number(s.t, value))
		ret.Token = call.Token
	case "for":
		if call.For = of.ID; call.Kind == history.Ended {
			call.ID = of.ID
		}
	case "why": // by the Revoke of that name, or nobody
		if call.Text = "lease revoked: I say so"; of.ID != 0 {
			call.Text = "lease revoked: " + history.Reason(of.Worker, of.ID)
		}
	case "lease":
		call.Lease, ret.Lease = value, value
	case "shown":
		id, n, _ := strings.Cut(value, ":")
		ret.Shown = map[string]int{id: int(number(s.t, n))}
	case "saw":
		ret.Values = map[string]string{"c0": value}
	case "deadline":
		call.Deadline = number(s.t, value) * ms
		ret.Deadline = call.Deadline
	case "ahead":
		call.Ahead = time.Duration(number(s.t, value)) * time.Millisecond
	case "client":
		call.Client, call.Final = int(number(s.t, value)), true
	case "class":
		ret.Class = strings.ReplaceAll(value, "_", " ")
	case "ran":
		ret.Ran = true
	case "revives":
		call.Revives = true
	case "quiet":
		s.terms.Quiet = true
	case "total":
		s.terms.Total = int(number(s.t, value))
	default:
		s.t.Fatalf("what is %q?", text)
	}
}

func number(t *testing.T, text string) int64 {
	t.Helper()
	return redistest.Must(strconv.ParseInt(text, 10, 64))(t)
}

// is checks that the history breaks just these rules, each at least once.
func (s *story) is(list string) {
	s.t.Helper()
	r := All(redistest.Must(history.New(s.terms, s.events))(s.t), time.Minute)
	figures := map[string]int64{"overlaps": int64(r.Overlaps), "stale": int64(r.Stale), "slots": int64(r.Slots), "delay": int64(r.Delay) / ms}
	var want, got []string
	for rule := range strings.SplitSeq(list, ",") {
		rule = strings.TrimSpace(rule)
		if name, value, isFigure := strings.Cut(rule, "="); isFigure {
			redistest.Expect(s.t, figures[name], number(s.t, value), name)
		} else if rule != "" {
			want = append(want, rule)
		}
	}
	for _, v := range r.Violations {
		got = append(got, v.Rule)
		redistest.Check(s.t, slices.Contains(want, v.Rule), "not expected: %s", v)
	}
	for _, rule := range want {
		redistest.Check(s.t, slices.Contains(got, rule), "%q is not found to be broken", rule)
	}
}
