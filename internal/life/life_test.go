package life

import (
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/internal/redistest"
)

// What the explorer can not judge: it knows no reasons, no answers of a second attempt and no
// pauses, and Redis answers each of its calls.

const second = time.Second

// aLife returns a life of an attempt that waits.
func aLife() *Life {
	a := New(Options{TTL: 3 * second, Waits: true})
	return &a
}

// aWaiting returns one that has a place in the queue.
func aWaiting(now Moment) *Life {
	a := aLife()
	a.Send()
	a.OnEnter(&Outcome{Code: Queued}, now, now)
	a.Detach(0, now)
	return a
}

// aHolding returns one whose caller has the lease since now.
func aHolding(now Moment) *Life {
	a := aLife()
	a.Send()
	a.OnEnter(&Outcome{Code: Granted, Term: a.TTL}, now, now)
	a.Take(now)
	return a
}

// A hint only brings a call forward.
func TestHintBringsACallForward(t *testing.T) {
	now := epoch
	a := aHolding(now)
	a.Tick(a.renewAt, 0)
	now = a.renewedAt + 10*time.Millisecond
	fx := a.OnHint(now)
	redistest.Check(t, fx == 0 && a.State == Holding && a.renewAt == a.renewedAt+hintPause,
		"a lease: effect %b, state %d, renewed %v after the last time; want a renewal after %v", fx, a.State, a.renewAt-a.renewedAt, hintPause)
	a.OnRenew(&Outcome{Code: Granted, Term: a.TTL}, a.TTL, a.renewedAt, now)
	do, _ := a.Tick(a.renewedAt+hintPause, 0)
	redistest.Check(t, do == ToProbe, "a hint during a renewal was forgotten")
	a = aLife()
	a.Send()
	a.OnHint(now)
	fx = a.OnEnter(&Outcome{Code: Queued}, now, now)
	redistest.Check(t, fx&Ask != 0, "a hint during the enter was forgotten")
	fx = a.OnHint(now)
	redistest.Check(t, fx == Ask && a.State == Waiting, "a hint about a place does not make the group ask")
	g := Asking{asked: now}
	g.Hint(now + second)
	g.Heard(now, now, 0)
	redistest.Check(t, g.Next(0) == now+second, "the reply to an earlier ask puts off what a hint has called for")
}

// Hints that come all the time put no renewal off that makes the lease longer. Anybody who may
// publish can send them, and new subscriptions cause them, too.
func TestHintsPutNoRenewalOff(t *testing.T) {
	a := aHolding(epoch)
	serverEnd := epoch + a.TTL // when the lease ends in Redis
	renewals, probes := 0, 0
	for now := epoch; now < epoch+10*a.TTL; now += 10 * time.Millisecond {
		a.OnHint(now)
		do, fx := a.Tick(now, 0)
		redistest.CheckNow(t, fx == 0 && a.State == Holding,
			"after %v: effect %b, state %d, %d renewals and %d questions", now-epoch, fx, a.State, renewals, probes)
		term := a.TTL
		switch do {
		case Nothing:
			continue
		case ToProbe:
			probes++
			term = ProbeTerm
		case ToRenew:
			renewals++
			left := a.Deadline - now
			redistest.Check(t, left >= a.TTL/2, "after %v: renewed with %v of %v left", now-epoch, left, a.TTL)
		}
		serverEnd = max(serverEnd, now+term)
		a.OnRenew(&Outcome{Code: Granted, Term: serverEnd - now}, term, now, now)
	}
	redistest.Check(t, renewals >= 20 && renewals <= 45 && probes >= 100, "%d renewals and %d questions in ten terms", renewals, probes)
}

// After a question the lease is renewed when it would have been without it.
func TestQuestionMovesNoRenewal(t *testing.T) {
	a := aHolding(epoch)
	due := a.renewAt
	now := epoch + a.TTL/4
	a.OnHint(now)
	do, _ := a.Tick(now, 0)
	redistest.CheckNow(t, do == ToProbe, "the hint causes %d, want a question", do)
	a.OnRenew(&Outcome{Code: Granted, Term: epoch + a.TTL - now}, ProbeTerm, now, now)
	off := due - a.renewAt
	redistest.Check(t, off >= 0 && off <= a.TTL/30, "it is renewed %v after the grant, before the hint %v", a.renewAt-epoch, due-epoch)
}

// A grant with a term that is short beside the time that it took to be heard is renewed before its caller
// gets it. The lease is then not lost, however long the renewal takes.
func TestBriefGrantIsConfirmedFirst(t *testing.T) {
	heard := func(after time.Duration, term time.Duration) *Life {
		a := aWaiting(epoch)
		a.OnNews(&Outcome{Code: Granted, Term: term}, false, epoch, epoch+after)
		return a
	}
	for _, quick := range []*Life{heard(300*time.Millisecond, 2*second), heard(second, 3*second)} {
		do, _ := quick.Look(epoch + second)
		redistest.Check(t, do == LookTake, "a lease that lasts: look %d", do)
	}
	a := aWaiting(epoch)
	a.OnNews(&Outcome{Code: Granted, Term: 2 * second, Trip: second / 2}, false, epoch, epoch)
	look, _ := a.Look(epoch)
	redistest.Check(t, look == LookWait, "a grant that was heard at once, where calls take long: look %d", look)
	for _, outcome := range []Code{Granted, Gone} {
		a := heard(400*time.Millisecond, 2*second)
		look, _ := a.Look(epoch + 400*time.Millisecond)
		do, _ := a.Tick(epoch+400*time.Millisecond, 0)
		redistest.CheckNow(t, look == LookWait && do == ToRenew, "a brief grant: look %d, call %d", look, do)
		at, _ := a.Due()
		late, longest := a.Patience(epoch + 4*second)
		redistest.Check(t, at > epoch+second && late == second && longest > second, "it is due after %v, and late after %v to %v", at-epoch, late, longest)
		a.Tick(epoch+2*second, epoch+3*second)
		a.OnRenew(&Outcome{Code: outcome, Term: a.TTL}, a.TTL, epoch+1900*time.Millisecond, epoch+3*second)
		look, _ = a.Look(epoch + 3*second)
		if outcome == Granted {
			redistest.Check(t, look == LookTake && a.Deadline > epoch+4*second, "a grant that was confirmed: look %d, deadline after %v", look, a.Deadline-epoch)
		} else {
			redistest.Check(t, a.Told == TellAgain, "a grant that is gone: told %d", a.Told)
		}
	}
	a = heard(400*time.Millisecond, 2*second)
	a.Tick(epoch+400*time.Millisecond, 0)
	a.OnHint(epoch + second)
	do, _ := a.Tick(epoch+second, 0)
	redistest.Check(t, do == ToRenew, "after a hint, call %d; want a renewal, as a question makes no lease longer", do)
	a.OnHint(epoch + second)
	a.OnRenew(&Outcome{Code: Granted, Term: a.TTL}, a.TTL, epoch+second, epoch+2*second)
	do, _ = a.Tick(epoch+2*second, 0)
	redistest.Check(t, do == ToProbe, "a hint during a confirmation was forgotten")
}

// A release has an answer, or is told that there is none, within patience.
func TestPatience(t *testing.T) {
	now := epoch
	a := aLife()
	for a.State == Entering {
		a.Send()
		now += 500 * time.Millisecond
		redistest.CheckNow(t, now <= epoch+patience+2*second, "an enter is tried for more than %v", now-epoch)
		a.OnEnter(&Outcome{Code: Unanswered}, now-500*time.Millisecond, now)
		now = max(now, a.Next)
	}
	redistest.Check(t, a.Told == TellNoAnswer, "told %d after the patience with an enter", a.Told)
	a = aWaiting(epoch)
	a.OnNews(&Outcome{Code: Granted, Term: second}, false, epoch, epoch+2*second)
	a.OnLeave(&Outcome{Code: Unanswered}, epoch+2*second+patience+1)
	redistest.Check(t, a.Told == TellNoAnswer, "told %d after the patience with the leave of a late grant", a.Told)
	g := Asking{}
	redistest.Check(t, !g.Failed(false, epoch) && !g.Failed(false, epoch+askPatience) && g.Failed(false, epoch+askPatience+1) && (&Asking{}).Failed(true, epoch),
		"waiters give up at another time than after askPatience, or a refusal")
}

// Whatever says that an attempt was revoked, its caller is told so.
func TestRevokedIsTold(t *testing.T) {
	revoked, now := &Outcome{Code: Revoked}, epoch
	sent := aLife()
	sent.Send()
	sent.OnEnter(revoked, now, now)
	asked := aWaiting(now)
	asked.OnNews(revoked, true, now, now)
	untaken := aWaiting(now)
	untaken.Confirms = true
	untaken.OnNews(&Outcome{Code: Granted, Term: untaken.TTL}, false, now, now)
	untaken.OnRenew(revoked, untaken.TTL, now, now)
	late := func(found *Outcome) *Life {
		a := aWaiting(now)
		a.OnNews(&Outcome{Code: Granted, Term: second}, false, now, now+2*second)
		redistest.Check(t, a.Told == WaitOn, "a late grant: told %d before the leave is answered", a.Told)
		a.OnLeave(found, now+2*second)
		return a
	}
	for by, a := range map[string]*Life{"the enter": sent, "the ask": asked, "the renewal of an untaken lease": untaken, "the leave of a late grant": late(revoked)} {
		redistest.Check(t, a.Told == TellRevoked, "by %s: told %d", by, a.Told)
	}
	redistest.Check(t, late(&Outcome{Code: Held}).Told == TellAgain, "a late grant that was given back is not asked for again")
	a := aLife()
	a.Send()
	a.OnNews(&Outcome{Code: Granted, Term: a.TTL}, false, now, now)
	a.OnEnter(revoked, now, now)
	redistest.Check(t, a.State == Lost && a.Ending == ByRevoker, "by the enter, after a grant: state %d, why %d", a.State, a.Ending)
}

// Redis counts a term from when the call runs, so it may keep the lease for a term after the
// answer came, or after the time of a call without one.
func TestUntil(t *testing.T) {
	sent, now := epoch, epoch+second
	a := aLife()
	a.Send()
	a.OnEnter(&Outcome{Code: Granted, Term: a.TTL}, sent, now)
	redistest.Check(t, a.until == now+a.TTL && a.Deadline == sent+a.TTL-Margin(a.TTL), "by an enter: until %v, deadline %v", a.until-now, a.Deadline-sent)
	a = aWaiting(sent)
	a.OnNews(&Outcome{Code: Granted, Term: a.TTL}, true, sent, now)
	redistest.Check(t, a.until == now+a.TTL, "by an ask: until %v", a.until-now)
	for _, code := range []Code{Granted, Unanswered} {
		a = aHolding(sent)
		a.OnRenew(&Outcome{Code: code, Term: 10 * second}, 10*second, sent, now)
		redistest.Check(t, a.until == now+10*second, "by a renewal (%d): until %v", code, a.until-now)
	}
	a = aHolding(sent)
	before := a.Deadline
	a.OnRenew(&Outcome{Code: Granted, Term: second}, second, sent, now)
	redistest.Check(t, a.Deadline == before, "an older answer moved the deadline back")
}

// Close gives back what its holder has. A grant that nobody has taken is its caller's, who
// hears that the handle is closed.
func TestCloseAndAGrantThatNobodyHasTaken(t *testing.T) {
	now := epoch
	a := aWaiting(now)
	a.attached = true
	a.OnNews(&Outcome{Code: Granted, Term: a.TTL}, false, now, now)
	fx := a.GiveBack(ByClose, now)
	redistest.Check(t, fx == 0 && a.State == Holding, "Close: effect %b, state %d", fx, a.State)
	a.Leave(now)
	a.Detach(0, now)
	redistest.Check(t, a.State == Leaving && a.Next == now, "its caller left: state %d", a.State)
}

// A deadline that has passed counts before whatever else comes, even if nobody has noticed yet.
func TestDeadlineIsNoticedFirst(t *testing.T) {
	a := aHolding(epoch)
	after := a.Deadline
	was, fx := a.Release(after, false)
	redistest.Check(t, was == Lost && fx&HoldEnded != 0 && a.Ending == ByDeadline && a.State == Leaving && a.Next == after,
		"a release: was %d, effect %b, why %d, state %d", was, fx, a.Ending, a.State)
	a = aHolding(epoch)
	fx = a.GiveBack(ByClose, after)
	redistest.Check(t, fx == HoldEnded && a.State == Lost && a.Ending == ByDeadline, "Close: effect %b, state %d, why %d", fx, a.State, a.Ending)
	a = aWaiting(epoch)
	a.OnNews(&Outcome{Code: Granted, Term: a.TTL}, false, epoch, epoch)
	do, fx := a.Look(after)
	redistest.Check(t, do != LookTake && fx == CameLate && a.State == Leaving, "a look: %d, effect %b, state %d", do, fx, a.State)
}

// A leave that finds nothing proves that the lease was lost only if no other leave can have given
// it back, and no time.
func TestReleaseIsAnsweredByTheOnlyLeave(t *testing.T) {
	atOnce := func(*Life) Moment { return epoch }
	late := func(a *Life) Moment { return a.Deadline }
	for name, c := range map[string]struct {
		until func(a *Life) Moment // what happens before the answer, and when that comes
		found Outcome
		want  Verdict
	}{
		"the only leave": {atOnce, Outcome{Code: Gone}, TellLost},
		// A place in the queue is no lease: the attempt's own copy of the enter has taken it since.
		"it finds a place": {func(a *Life) Moment { a.resent = true; return epoch }, Outcome{Code: Queued}, TellLost},
		// The lease may have expired before the copy ran.
		"it finds a place after the deadline": {late, Outcome{Code: Queued}, TellDone},
		"a copy of it may run":                {atOnce, Outcome{Code: Gone, Copied: true}, TellDone},
		"it is answered after the deadline":   {late, Outcome{Code: Gone}, TellDone},
		"it stored no result":                 {func(a *Life) Moment { a.Complete = true; return a.Deadline }, Outcome{Code: Gone}, TellLost},
		"one before it had no answer": {func(a *Life) Moment {
			a.OnLeave(&Outcome{Code: Unanswered}, epoch)
			a.Tick(a.Next, 0)
			return a.Next
		}, Outcome{Code: Gone}, TellDone},
		"it is the second, and answered first": {func(a *Life) Moment {
			a.OnLeave(&Outcome{Code: NotSent}, epoch)
			a.Tick(a.Next, 0)
			again := a.Next
			do, _ := a.Tick(again, 0)
			redistest.CheckNow(t, do == ToLeave, "the leave is not repeated")
			return again
		}, Outcome{Code: Gone}, TellDone},
	} {
		a := aHolding(epoch)
		a.Release(epoch, false)
		a.OnLeave(&c.found, c.until(a))
		redistest.Expect(t, a.Told, c.want, "%s: told %d", name)
	}
	a := aHolding(epoch)
	a.Release(epoch, false)
	do, _ := a.Tick(epoch+second, 0)
	redistest.Check(t, do == Nothing, "a leave is sent beside the releaser's own")
}

// While its caller looks, sends and is told, a grant may come, and the enter is not wanted.
func TestEnterIsNotWantedAfterAGrant(t *testing.T) {
	a := aLife()
	do, _ := a.Look(epoch)
	redistest.CheckNow(t, do == LookSend, "look says %d", do)
	a.OnNews(&Outcome{Code: Granted, Term: a.TTL}, false, epoch, epoch)
	redistest.Check(t, !a.Send(), "an enter is sent for an attempt that has a lease")
}

// An answer without a lease leaves nothing behind, unless a copy of an earlier enter may run.
func TestAnswerWithoutALease(t *testing.T) {
	now := epoch
	for code, want := range map[Code]Verdict{Busy: TellAnswer, GivenUp: TellAgain, Revoked: TellRevoked} {
		a := aLife()
		a.Send()
		a.OnEnter(&Outcome{Code: code}, now, now)
		a.Detach(0, now)
		redistest.Check(t, a.Told == want && a.State == Over && a.settled, "%d: told %d, state %d", code, a.Told, a.State)
		a = aLife()
		a.Send()
		a.OnEnter(&Outcome{Code: Unanswered}, now, now+second)
		a.Send()
		a.OnEnter(&Outcome{Code: code}, now+second, now+second)
		a.Detach(0, now+second)
		redistest.Check(t, a.Told == want && a.State == Leaving && a.gone() >= now+VoidAfter+a.TTL,
			"%d after an enter without an answer: told %d, state %d", code, a.Told, a.State)
	}
}

// A renewal whose outcome comes when the leaves have ended without an answer may have prolonged
// the lease, so they begin again.
func TestRenewalAfterTheLeaves(t *testing.T) {
	for _, code := range []Code{Granted, Unanswered} {
		a := aHolding(epoch)
		a.Release(epoch, false)
		a.OnLeave(&Outcome{Code: Unanswered}, epoch+second)
		end := a.gone()
		a.Tick(end, 0)
		redistest.CheckNow(t, a.State == Over, "state %d after the term", a.State)
		a.OnRenew(&Outcome{Code: code, Term: a.TTL}, a.TTL, epoch, end)
		last := end
		if code == Unanswered { // a copy of it may still run
			last = max(end, epoch+VoidAfter)
		}
		do, _ := a.Tick(end, 0)
		redistest.Check(t, do == ToLeave && a.gone() == last+a.TTL, "a renewal (%d): duty %d, until %v", code, do, a.gone()-end)
	}
}

// A leave is sent at least once, although the process stood still for longer than a place is alive.
func TestLeaveIsSentAtLeastOnce(t *testing.T) {
	a := aWaiting(epoch)
	a.Leave(epoch)
	a.Detach(0, epoch)
	after := a.gone() + second
	do, _ := a.Tick(after, 0)
	redistest.Check(t, do == ToLeave && a.State == Leaving, "duty %d, state %d", do, a.State)
	a.Tick(after, 0)
	redistest.Check(t, a.State == Over, "state %d; want that it is over after the leave", a.State)
}

// The life of an idle lease: it serves nobody after its deadline, and is given back at once when it
// is lost, because no holder needs time to stop.
func TestLifeOfAnIdleLease(t *testing.T) {
	a := aHolding(epoch)
	redistest.CheckNow(t, a.Rest(epoch+1) && a.Resume(a.Deadline-1) && !a.Idle, "a lease that is held does not rest, or serves no other turn")
	redistest.CheckNow(t, a.Rest(a.Deadline-1), "a lease that is held does not rest")
	redistest.Check(t, !a.Resume(a.Deadline), "an idle lease serves a turn at its deadline")
	fx := a.notice(a.Deadline)
	redistest.Check(t, a.State == Leaving && a.Released && fx&HoldEnded != 0, "at its deadline an idle lease is %v; want that it is given back", a.State)
	a = aHolding(epoch)
	redistest.Check(t, !a.Rest(a.Deadline), "a lease rests at its deadline")
	a = aHolding(epoch)
	a.notice(a.Deadline)
	redistest.Check(t, a.State == Lost, "at its deadline a lease in use is %v; want that it is lost", a.State)
}
