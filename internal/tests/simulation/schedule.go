package simulation

import (
	"bufio"
	"cmp"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// verb is what a step does.
type verb string

const (
	// What clients do.
	take       verb = "take"       // permits of a semaphore, with or without a total, or a mutex: key permits try wait hold extend
	adjust     verb = "adjust"     // the limit of a key of a family with a total, or that; 0 = back to what is configured: key permits wait
	once       verb = "once"       // a slot of a mutex: key slot keep try wait hold fails obeys
	several    verb = "several"    // permits and locks together: key try wait hold; key is as in "n,a*2"
	do         verb = "do"         // a cached value: key wait load fails obeys big
	many       verb = "many"       // all cached values: wait load fails obeys
	peek       verb = "peek"       // a cached value, without loading: key
	invalidate verb = "invalidate" // a cached value: key wait
	poll       verb = "poll"       // a cached value, again and again: key load, for, every by
	inspect    verb = "inspect"    // of any kind: key wait
	revoke     verb = "revoke"     // of what an Inspect shows, after hold: key pick queued again wait hold
	// What happens to clients.
	keeps   verb = "keeps"   // they have a KeepFor: keep; at the beginning
	restart verb = "restart" // closes its handles, and goes on with new ones
	die     verb = "die"     // is gone at once; a new one takes its place after for
	// What the network does, to one client or to all.
	lose   verb = "lose"   // dir: is lost, for; then the connection ends, or is silent
	slow   verb = "slow"   // dir: arrives later by, for
	stall  verb = "stall"  // nothing moves, for: the client is as good as paused
	refuse verb = "refuse" // no new connections, for
	cut    verb = "cut"    // ends all connections; what was sent still arrives
	// What a hook of a client does to what it sends, for; also late, after it was sent.
	misuse verb = "misuse" // dir: panics, exits, fails, swallows it, or sends what failed again
	// What the server's operator does.
	forget   verb = "forget"   // SCRIPT FLUSH
	flushAll verb = "flushall" // FLUSHALL
	limit    verb = "limit"    // key permits: a limit set at run time, for
	// What anybody does who may publish.
	forge verb = "forge" // hints that all was revoked, and the latest messages once more
)

// The directions of lose and slow.
const (
	requests = "requests"
	replies  = "replies"  // and messages
	messages = "messages" // what comes on a subscribed connection
)

// What a hook of misuse does.
const (
	panics   = "panics"
	exits    = "exits" // its goroutine
	fails    = "fails"
	swallows = "swallows"
	again    = "again"
)

// everybody is the client of a step that concerns all of them.
const everybody = -1

// step is one thing that happens, at a time since the start of the run.
type step struct {
	at      time.Duration
	verb    verb
	client  int
	key     string
	permits int
	pick    int // which of what is shown
	dir     string
	slot    string

	wait, hold, extend, load, span, by, keep time.Duration
	try, fails, obeys, big, silent, late     bool
	queued, again                            bool
}

// schedule is a run, in order of time.
type schedule []step

// flags are the fields of a step, by the names that they have in its text.
func (s *step) flags() *flag.FlagSet {
	all := flag.NewFlagSet("", flag.ContinueOnError)
	all.SetOutput(io.Discard)
	for name, to := range map[string]*int{"client": &s.client, "permits": &s.permits, "pick": &s.pick} {
		all.IntVar(to, name, *to, "")
	}
	for name, to := range map[string]*string{"key": &s.key, "slot": &s.slot, "dir": &s.dir} {
		all.StringVar(to, name, *to, "")
	}
	for name, to := range map[string]*time.Duration{
		"wait": &s.wait, "hold": &s.hold, "keep": &s.keep, "extend": &s.extend, "load": &s.load, "for": &s.span, "by": &s.by,
	} {
		all.DurationVar(to, name, *to, "")
	}
	for name, to := range map[string]*bool{
		"try": &s.try, "fails": &s.fails, "obeys": &s.obeys, "big": &s.big, "silent": &s.silent, "late": &s.late, "queued": &s.queued, "again": &s.again,
	} {
		all.BoolVar(to, name, *to, "")
	}
	return all
}

// String is the step as a line of text, which parseStep reads.
func (s step) String() string {
	text := fmt.Sprintf("%v %s", s.at, s.verb)
	s.flags().VisitAll(func(f *flag.Flag) {
		if !slices.Contains([]string{"", "0", "0s", "false"}, f.DefValue) {
			text += fmt.Sprintf(" -%s=%s", f.Name, f.DefValue)
		}
	})
	return text
}

// parseStep reads a line of text.
func parseStep(line string) (step, error) {
	words := strings.Fields(line)
	if len(words) < 2 {
		return step{}, fmt.Errorf("%q: want a time and a verb", line)
	}
	at, err := time.ParseDuration(words[0])
	s := step{at: at, verb: verb(words[1])}
	fields := s.flags()
	if err = errors.Join(err, fields.Parse(words[2:])); err != nil || fields.NArg() > 0 {
		return step{}, fmt.Errorf("%q: %v; not read: %q", line, err, fields.Args())
	}
	return s, nil
}

// parse reads a schedule, one step a line; empty lines and comments (#) don't count.
func parse(r io.Reader) (schedule, error) {
	var all schedule
	for lines := bufio.NewScanner(r); lines.Scan(); {
		line, _, _ := strings.Cut(lines.Text(), "#")
		if strings.TrimSpace(line) == "" {
			continue
		}
		s, err := parseStep(line)
		if err != nil {
			return nil, err
		}
		all = append(all, s)
	}
	all.sort()
	return all, nil
}

func (s schedule) sort() {
	slices.SortStableFunc(s, func(a, b step) int { return cmp.Compare(a.at, b.at) })
}

func (s schedule) String() string {
	var b strings.Builder
	for _, st := range s {
		b.WriteString(st.String() + "\n")
	}
	return b.String()
}

// fault reports whether a step is one that may keep a client from being served, and until when.
func (s step) fault() (until time.Duration, ok bool) {
	switch s.verb {
	case lose, slow, stall, refuse, cut, misuse, die, flushAll:
		return s.at + s.span + s.by, true
	}
	return 0, false
}

// violation is a promise that was not kept: the first of a run.
type violation struct {
	rule string // which promise, to tell one violation from another
	at   time.Duration
	what string
}

func (v *violation) String() string { return fmt.Sprintf("%s at %v: %s", v.rule, v.at, v.what) }

// course is how a run goes.
type course struct {
	start  time.Time
	failed chan struct{}

	verdict   sync.Mutex // the innermost lock
	violation *violation
	tally     map[string]int
}

func newCourse() course {
	return course{start: time.Now(), failed: make(chan struct{}), tally: map[string]int{}}
}

// since is the time since the start of the run.
func (w *course) since(t time.Time) time.Duration { return t.Sub(w.start) }

// fail notes a violation. The first one ends the run.
func (w *course) fail(rule, format string, args ...any) {
	w.verdict.Lock()
	defer w.verdict.Unlock()
	if w.violation == nil {
		w.violation = &violation{rule, w.since(time.Now()), fmt.Sprintf(format, args...)}
		close(w.failed)
	}
}

// failIf notes a violation where there is one.
func (w *course) failIf(bad bool, rule, format string, args ...any) {
	if bad {
		w.fail(rule, format, args...)
	}
}

func (w *course) over() bool {
	select {
	case <-w.failed:
		return true
	default:
		return false
	}
}

func (w *course) note(what string) {
	w.verdict.Lock()
	defer w.verdict.Unlock()
	w.tally[what]++
}

// wait sleeps until a time of the run, or until the run has failed.
func (w *course) wait(at time.Duration) {
	select {
	case <-time.After(at - w.since(time.Now())):
	case <-w.failed:
	}
}

// shrinking finds the few steps of a schedule that break a promise: delta debugging (Zeller, Hildebrandt,
// Simplifying and Isolating Failure-Inducing Input, 2002), within a number of reruns.
type shrinking struct {
	t     *testing.T
	rule  string // the promise; another one that breaks meanwhile is another failure
	left  int    // reruns
	until time.Time
	found *violation // the latest
}

// report reports a violation with the steps that it takes.
func report(t *testing.T, seed uint64, s schedule, v *violation) {
	t.Errorf("LEASEHOLD_SEED=%d: %v", seed, v)
	sh := &shrinking{t: t, rule: v.rule, left: 400, until: time.Now().Add(3 * time.Minute), found: v}
	if n, err := strconv.Atoi(os.Getenv("LEASEHOLD_SHRINK")); err == nil {
		sh.left = n
	}
	if sh.left <= 0 {
		return
	}
	few := sh.fewest(s)
	const runs = 20
	again := 0
	for range runs {
		if o := run(t, few); o.violation != nil {
			again++
		}
	}
	t.Errorf("shrunk to %d steps, which failed in %d of %d reruns; again with LEASEHOLD_SEED=%d, or with these lines as the file LEASEHOLD_SCHEDULE:\n# %v\n%v",
		len(few), again, runs, seed, sh.found, few)
}

// fails reports whether a schedule still breaks the promise.
func (sh *shrinking) fails(s schedule) bool {
	if sh.left == 0 || time.Now().After(sh.until) {
		return false
	}
	sh.left--
	o := run(sh.t, s)
	if o.violation == nil || o.violation.rule != sh.rule {
		return false
	}
	sh.found = o.violation
	return true
}

// fewest leaves out what it can: halves of the steps, then quarters, at last single ones.
func (sh *shrinking) fewest(s schedule) schedule {
	// What came after the violation has nothing to do with it.
	before := slices.DeleteFunc(slices.Clone(s), func(st step) bool { return st.at > sh.found.at })
	if len(before) < len(s) && sh.fails(before) {
		s = before
	}
	for size := (len(s) + 1) / 2; size > 0; {
		reduced := false
		for from := 0; from < len(s); {
			rest := slices.Delete(slices.Clone(s), from, min(from+size, len(s)))
			if sh.fails(rest) {
				s, reduced = rest, true
				continue
			}
			from += size
		}
		if size > 1 || !reduced {
			size /= 2
		}
	}
	return s
}
