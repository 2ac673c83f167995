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

// What is told in several stories.
const (
	twoLoads  = `w1 read 0-10 =a; w1 load 1-9 for=a =l; w2 read 0-10 =b; w2 load 5-7 for=b; `
	oneLoad   = `w1 read 0-10 saw=w1.2 =a; w1 load 1-9 for=a; `
	heldByA   = `w1 lock 0-1 token=1 lease=a =a; `
	shownAndR = `w3 revoke 100-110 lease=a =r; w1 ended 140 for=a deadline=1040 why=r; w1 unlock 150-151 for=a; `
)

var stories = map[string]string{
	// A semaphore has two permits.
	"within the limit": `w1 acquire 0-1 =a; w2 acquire 1-2 =b; w1 release 10-12 for=a; w3 acquire 5-11; w2 release 20-21 for=b;
		w3 kill 30; w1 acquire 40-41 n=2 =c; w1 release 50-51 for=c; =>`, // w3's is within a release, which can have been first
	"beyond the limit": `w1 acquire 0-1 =a; w2 acquire 1-2 =b; w3 acquire 3-4 =c; w1 release 10-12 for=a; w2 release 10-12 for=b;
		w3 release 10-12 for=c; => model, cap`,
	"permits are counted": `w1 acquire 0-1 n=2 =a; w2 acquire 3-4 =b; w1 release 10-12 for=a; w2 release 10-12 for=b; => model, cap`,
	"granted when a lease has expired": `w1 acquire 0-1 n=2 =a; w1 ended 900 for=a deadline=900; w2 acquire 800-901 n=2 =b;
		w1 release 2000-2001 for=a; w2 release 3000-3001 for=b; w2 ended 1401 for=b deadline=1401; =>`,
	"granted before it has": `w1 acquire 0-1 n=2 =a; w1 ended 900 for=a deadline=900; w2 acquire 800-899 n=2 =b;
		w1 release 2000-2001 for=a; w2 release 3000-3001 for=b; w2 ended 1399 for=b deadline=1399; => model, cap`,
	"a call that failed may have been granted, and keeps nobody from anything": `w1 acquire 0-5 n=2 class=unavailable; w2 acquire 0- n=2;
		w2 kill 30; w3 acquire 1-2 n=2 =a; w3 release 5- for=a; w3 kill 30; w4 acquire 6-20 n=2; w4 kill 30; =>`,
	"beyond what the server forgot there are overlaps, and the limit holds among what came after": `w1 acquire 0-1 n=2 =a; - forget 10-20;
		w2 acquire 25-30 n=2 =b; w1 release 50-51 for=a; w2 release 60-61 for=b; => overlaps=1;
		w3 acquire 40-45 =c; w3 release 70-71 for=c; => model, cap`,
	"the total": `w1 healed 0 total=3; ` + threeOfTotal + `=>`,
	"each key is within its limit, not together": `w1 healed 0 total=2; ` + threeOfTotal + `=> model, cap`,

	// A TTL of 1 s has a margin of 20 ms.
	"a deadline beyond the margin": `w1 acquire 0-1 deadline=985 =a; w1 release 10-11 for=a; => deadline`,
	"the same, after a renewal":    `w1 acquire 0-1 =a; w1 release 500-501 for=a deadline=1200 ahead=981; => deadline`,
	"believed in beyond the deadline": `w1 acquire 0-1 =a; w1 ended 1900 for=a deadline=900; => belief;
		w1 stall 800-1890; =>`, // it did not run
	"given back beyond it":                `w1 acquire 0-1 =a; w1 release 1500-1501 for=a deadline=900 class=lost; => belief`,
	"believed in for a TTL after it went": `w1 acquire 0-1 =a; - forget 10-20 key=s0; w1 release 1020-1021 for=a deadline=2000; =>`,
	"believed in for longer than that":    `w1 acquire 0-1 =a; - forget 10-20 key=s0; w1 release 1021-1022 for=a deadline=2000; => told`,

	"locks and writes in turn": `w1 lock 0-1 token=7 =a; w1 write 2-3 token=7; w1 write 4-5 token=7; w1 unlock 10-15 for=a; w2 lock 5-12 token=8 =b;
		w2 write 13-14 token=8; w1 write 16-17 token=7 class=fenced; w2 unlock 20-21 for=b; =>`,
	"two holders": `w1 lock 0-1 token=7 =a; w2 lock 5-6 token=8 =b; w1 unlock 10-15 for=a; w2 unlock 20-21 for=b; => model, cap`,
	"a token twice": `w1 lock 0-1 token=7 =a; w1 unlock 10-15 for=a; w2 lock 20-21 token=7 =b; w2 unlock 30-31 for=b;
		=> model, token order`,
	"a token that falls": `w1 lock 0-1 token=7 =a; w1 unlock 10-15 for=a; w2 lock 20-21 token=6 =b; w2 unlock 30-31 for=b;
		=> model, token order`,
	"a stale write accepted": `w2 write 0-5 token=8; w1 write 3-6 token=7; w2 lock 20-21 token=9; w2 kill 30; =>;
		w1 write 10-11 token=7; => model, stale write, stale=1`, // the second one may have been the first
	"a write refused without reason": `w1 lock 0-1 token=1; w1 kill 30; w1 write 2-3 token=7 class=fenced; => model`,
	"a write without an answer may have happened, or not": `w3 lock 0-1 token=3; w3 kill 1; w2 write 0-5 token=8 class=unavailable;
		w1 write 10-11 token=7; w1 write 20-21 token=7; =>; w1 write 30-31 token=7; =>`,
	"but has happened once another one was refused": `w3 lock 0-1 token=3; w3 kill 1; w2 write 0-5 token=8 class=unavailable;
		w1 write 10-11 token=7; w1 write 20-21 token=7 class=fenced; =>; w1 write 30-31 token=7; => model`, // the sweep doesn't see as far
	"a lock that was forgotten": `w1 lock 0-1 token=7 =a; - forget 5-6 key=m0; w2 lock 5-8 token=9 =b; w1 unlock 10-15 for=a;
		w2 unlock 20-21 for=b; => overlaps=1`,
	"a lock of another key was": `w1 lock 0-1 token=7 =a; - forget 5-6 key=m1; w2 lock 5-8 token=9 =b; w1 unlock 10-15 for=a;
		w2 unlock 20-21 for=b; => model, cap`,

	"reads beside an invalidation": oneLoad + `w2 read 2-20 saw=w1.2; w2 invalidate 8-15; w2 read 14-30 saw=w1.2;
		w1 read 40-50 saw=w1.7 =b; w1 load 41-49 for=b; =>`, // the waiting may have it; the second came before that returned
	"a stale read": oneLoad + `w2 invalidate 11-15; w2 read 16-30 saw=w1.2; => model, stale read`,
	// The sweep compares only pairs.
	"an invalidation takes effect at one moment for all": oneLoad + `w2 invalidate 20-100; w1 read 30-40 saw=w1.5 =b; w1 load 31-39 for=b;
		w2 read 60-61 saw=w1.2; w2 read 110-111 saw=w1.5; => model`,
	"an invalidation without an answer": oneLoad + `w2 invalidate 11-15 class=unavailable; w2 read 16-30 saw=w1.2;
		w1 read 40-50 saw=w1.6 =b; w1 load 41-49 for=b; =>`,
	"a value from nowhere":    `w1 read 0-10 saw=w1.99; => model, stale read`,
	"a value before its load": `w1 read 0-10 saw=w1.2 =a; w1 load 20-29 for=a; => model`,
	"a failover brings back what was invalidated, until the next time": oneLoad + `w2 invalidate 11-15; - forget 20-25 revives;
		w2 read 30-31 saw=w1.2; => overlaps=1; w2 invalidate 40-41; w2 read 50-51 saw=w1.2; => model, stale read`,
	"two loads that may both store":              twoLoads + `=> builds, overlaps=0`,
	"one of them has no callers any more":        `w1 read 0-100 class=timeout =a; w1 load 10-400 for=a; w2 read 90-200 =b; w2 load 150-190 for=b; => overlaps=0`,
	"one of them serves a stale value meanwhile": `w1 read 0-20 =a; w1 load 10-400 for=a; w2 read 90-200 =b; w2 load 150-190 for=b; => builds, overlaps=0`,
	"one caller of two has left": `w1 read 0-100 class=timeout =a; w1 read 99-401; w1 load 10-400 for=a; w2 read 90-200 =b;
		w2 load 150-190 for=b; => builds, overlaps=0`,
	"one of them may have been invalidated":   twoLoads + `w3 invalidate 3-4 class=timeout; => overlaps=0`,
	"one of them was told to end":             twoLoads + `w1 ended 4 for=l; => overlaps=0`,
	"one of them could not be told":           twoLoads + `w1 stop 3-4; => overlaps=0`,
	"one of them was forgotten by the server": twoLoads + `- forget 2-3 key=c0; => overlaps=1`,

	"slots": `w1 once 0-10 ran class=load_failed; w2 once 10-20 ran class=lost; w1 once 20-30 ran; w2 once 5-40; => slots=1;
		w3 once 50-60 ran class=load_failed; => slot`, // it runs after the completion
	"two completions":                      `w1 once 0-10 ran; w2 once 5-20 ran; => slot`,
	"called complete after a failed run":   `w1 once 0-10 ran class=load_failed; w2 once 20-30; => slot`,
	"called complete after a lost lock":    `w1 once 0-10 ran class=lost; w2 once 20-30; => slot`,
	"called complete after no answer":      `w1 once 0-10 ran class=unavailable; w2 once 20-30; =>`,
	"a completion that the server forgets": `w1 once 0-10 ran; - forget 15-16; w2 once 20-30 ran; =>`,

	// What was revoked counts for nothing from the call of Revoke on.
	"the next holds during a Revoke": heldByA + `w3 revoke 100-110 lease=a =r; w1 ended 120 for=a deadline=1020 why=r; w1 unlock 130-131 for=a;
		w2 lock 90-105 token=2 lease=b =b; w2 unlock 200-201 for=b; =>`,
	"the next holds before it": heldByA + `w3 revoke 100-110 lease=a =r; w1 ended 120 for=a deadline=1020 why=r; w1 unlock 130-131 for=a;
		w2 lock 90-99 token=2 lease=b =b; w2 unlock 200-201 for=b; => model, cap`,
	"a turn on what was revoked promises nothing": heldByA + `w1 unlock 10-11 for=a; w3 revoke 20-21 lease=a; w2 lock 15-22 token=9 lease=b =b;
		w1 lock 30-31 token=2 lease=a =c; w1 unlock 40-41 for=c; w2 unlock 50-51 for=b; =>`,
	"told of a revocation":                heldByA + `w3 revoke 100-110 lease=a =r; ` + toldByR + `=>`,
	"told of that of another lease":       heldByA + `w3 revoke 100-110 lease=x =r; ` + toldByR + `=> revoked`,
	"told of that of another key":         heldByA + `w3 revoke 100-110 key=m1 lease=a =r; ` + toldByR + `=> revoked`,
	"told of one that found no lease":     heldByA + `w3 revoke 100-110 lease=a class=no_such_lease =r; ` + toldByR + `=> revoked`,
	"told of one that nobody did":         heldByA + `w1 ended 120 for=a deadline=1020 why=nobody; w1 unlock 130-131 for=a; => revoked`,
	"told within a TTL of the Revoke":     heldByA + `w3 revoke 100-110 lease=a; w1 unlock 1100-1101 for=a; =>`,
	"not told within it":                  heldByA + `w3 revoke 100-110 lease=a; w1 unlock 1200-1201 for=a; => told`,
	"a failover undid it":                 heldByA + `w3 revoke 100-110 lease=a; - forget 105-120 revives; w1 unlock 1200-1201 for=a; =>`,
	"a failover long after it":            heldByA + `w3 revoke 100-110 lease=a; - forget 1115-1120 revives; w1 unlock 1200-1201 for=a; => told`,
	"a failover before it":                heldByA + `w3 revoke 100-110 lease=a; - forget 90-99 revives; w1 unlock 1200-1201 for=a; => told`,
	"listed while it is held":             heldByA + `w3 inspect 50-60 shown=a:1; ` + shownAndR + `=>`,
	"not listed":                          heldByA + `w3 inspect 50-60; ` + shownAndR + `=> listing`,
	"listed with other permits":           heldByA + `w3 inspect 50-60 shown=a:2; ` + shownAndR + `=> listing`,
	"not listed while it is revoked":      heldByA + `w3 inspect 95-105; ` + shownAndR + `=>`,
	"not listed after that":               heldByA + `w3 inspect 115-125; ` + shownAndR + `=>`,
	"listed after that":                   heldByA + `w3 inspect 115-125 shown=a:1; ` + shownAndR + `=> listing`,
	"what a revoked load gave, elsewhere": loadsAndR + `w2 read 150-210 saw=w1.2; => revoked`,
	"what a revoked load gave, at home":   loadsAndR + `w1 read 150-210 saw=w1.2; =>`, // the next began before it was told
	"a load that no Revoke found": `w1 read 0-200 =a; w1 load 1-190 for=a =l; w3 revoke 100-110 key=c0 lease=a class=no_such_lease =r;
		w1 ended 180 for=l deadline=1080 why=r; w2 read 50-300 =b; w2 load 112-290 for=b; w1 read 150-210 saw=w1.2; => revoked, builds`,

	"served after the faults": `- healed 100; w1 acquire 50-130 =a; w1 release 140-141 for=a; => delay=30;
		w1 lock 150-160 client=7 class=unavailable; => served; w1 read 170-200 client=8; => served;
		w1 lock 170-250 client=7 token=1 deadline=900 =l; w1 unlock 260-261 for=l deadline=900; => delay=100`, // 8 is another client
	"a call that never returns":           `- healed 100; w1 read 50-; => served`,
	"unavailable":                         `w1 lock 0-1 class=unavailable; =>`,
	"unavailable, under faults of no one": `w1 lock 0-1 class=unavailable quiet; => outcome`,
	"unavailable soon after the machine stood still, and later": `server stall 0-900 quiet; w1 lock 1100-1101 class=unavailable; =>;
		w1 lock 1900-1901 class=unavailable; => outcome`,
	"an error that nobody expects": `w1 lock 0-1 class=other; => outcome`,
	"lost":                         heldByA + `w1 unlock 800-801 for=a class=lost; =>`,
	"lost, under faults of no one": heldByA + `w1 unlock 800-801 for=a class=lost quiet; => outcome; w1 stall 300-500; =>`,
	"given back twice":             heldByA + `w1 unlock 800-801 for=a class=released; => outcome`,
	"gone, and given back":         tenant + `- forget 100-110 key=t0; w1 release 200-201 key=t0 for=a; => outcome`,
	"gone, and lost":               tenant + `- forget 100-110 key=t0; w1 release 200-201 key=t0 for=a class=lost; =>`,
	"gone, and given back late":    tenant + `- forget 100-110 key=t0; w1 release 200-301 key=t0 for=a; =>`,
	"gone as it is given back":     tenant + `- forget 100-110 key=t0; w1 release 105-111 key=t0 for=a; =>`,
	"revoked, and given back":      tenant + `w3 revoke 100-110 key=t0 lease=a; w1 release 200-201 key=t0 for=a; => outcome`,
}

const (
	threeOfTotal = `w1 acquire 0-1 key=t0 deadline=900 =a; w1 release 50-51 key=t0 for=a deadline=900; w1 acquire 10-11 key=t1 deadline=900 =b;
		w1 release 50-51 key=t1 for=b deadline=900; w1 acquire 20-21 key=t2 deadline=900 =c; w1 release 50-51 key=t2 for=c deadline=900; `
	tenant    = `w1 acquire 0-1 key=t0 lease=a =a; `
	toldByR   = `w1 ended 120 for=a deadline=1020 why=r; w1 unlock 130-131 for=a; `
	loadsAndR = `w1 read 0-200 =a; w1 load 1-190 for=a =l; w3 revoke 100-110 key=c0 lease=a =r; w1 ended 180 for=l deadline=1080 why=r;
		w2 read 50-300 =b; w2 load 112-290 for=b; `
)

func TestStories(t *testing.T) {
	for name, text := range stories {
		t.Run(name, func(t *testing.T) { newStory(t).tell(text) })
	}
}

// A model that comes to no end fails the run.
func TestUnknownIsAViolation(t *testing.T) {
	s := newStory(t)
	for i := range 20_000 { // so long that the bound is met on the way
		s.tell(fmt.Sprintf("w1 lock %d-%d token=%d =a; w1 unlock %d-%d for=a", 10*i, 10*i+5, i+1, 10*i+6, 10*i+7))
	}
	r := All(redistest.Must(history.New(s.terms, s.events))(t), 1)
	redistest.Check(t, len(r.Violations) == 1 && r.Violations[0].Rule == "model" && len(r.Failed) == 1, "violations: %v", r.Violations)
}

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
