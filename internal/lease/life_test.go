package lease

import (
	"testing"
	"time"
)

// What the explorer can not judge: it knows no reasons, no answers of a second attempt and no
// pauses, and Redis answers each of its calls.

const second = time.Second

// aLife returns a life of an attempt that waits.
func aLife() *life { return &life{ttl: 3 * second, waits: true, attached: true} }

// aQueued returns one that has a place in the queue.
func aQueued(now moment) *life {
	a := aLife()
	a.send()
	a.onEnter(&Result{Code: Queued}, now, now)
	a.detach(0, now)
	return a
}

// aHeld returns one whose caller has the lease since now.
func aHeld(now moment) *life {
	a := aLife()
	a.send()
	a.onEnter(&Result{Code: Granted, Term: a.ttl}, now, now)
	a.take(now)
	return a
}

// A hint only brings a call forward.
func TestHintBringsACallForward(t *testing.T) {
	now := epoch
	a := aHeld(now)
	a.tick(a.renewAt, 0)
	now = a.renewedAt + 10*time.Millisecond
	if fx := a.onHint(now); fx != 0 || a.state != held || a.renewAt != a.renewedAt+hintPause {
		t.Errorf("a lease: effect %b, state %d, renewed %v after the last time; want a renewal after %v", fx, a.state, a.renewAt-a.renewedAt, hintPause)
	}
	a = aLife()
	a.send()
	a.onHint(now)
	if fx := a.onEnter(&Result{Code: Queued}, now, now); fx&ask == 0 {
		t.Error("a hint during the enter was forgotten")
	}
	if fx := a.onHint(now); fx != ask || a.state != queued {
		t.Error("a hint about a place does not make the group ask")
	}
	g := asking{asked: now}
	g.hint(now + second)
	g.heard(now, now, 0)
	if g.next(0) != now+second {
		t.Error("the reply to an earlier ask puts off what a hint has called for")
	}
}

// Hints that come all the time put no renewal off that makes the lease longer. Anybody who may
// publish can send them, and new subscriptions cause them, too.
func TestHintsPutNoRenewalOff(t *testing.T) {
	a := aHeld(epoch)
	serverEnd := epoch + a.ttl // when the lease ends in Redis
	renewals, probes := 0, 0
	for now := epoch; now < epoch+10*a.ttl; now += 10 * time.Millisecond {
		a.onHint(now)
		do, fx := a.tick(now, 0)
		if fx != 0 || a.state != held {
			t.Fatalf("after %v: effect %b, state %d, %d renewals and %d questions", now-epoch, fx, a.state, renewals, probes)
		}
		term := a.ttl
		switch do {
		case nothing:
			continue
		case toProbe:
			probes++
			term = probeTerm
		case toRenew:
			renewals++
			if left := a.deadline - now; left < a.ttl/2 {
				t.Errorf("after %v: renewed with %v of %v left", now-epoch, left, a.ttl)
			}
		}
		serverEnd = max(serverEnd, now+term)
		a.onRenew(&Result{Code: Granted, Term: serverEnd - now}, term, now, now)
	}
	if renewals < 20 || renewals > 45 || probes < 100 {
		t.Errorf("%d renewals and %d questions in ten terms", renewals, probes)
	}
}

// After a question the lease is renewed when it would have been without it.
func TestQuestionMovesNoRenewal(t *testing.T) {
	a := aHeld(epoch)
	due := a.renewAt
	now := epoch + a.ttl/4
	a.onHint(now)
	if do, _ := a.tick(now, 0); do != toProbe {
		t.Fatalf("the hint causes %d, want a question", do)
	}
	a.onRenew(&Result{Code: Granted, Term: epoch + a.ttl - now}, probeTerm, now, now)
	if off := due - a.renewAt; off < 0 || off > a.ttl/30 {
		t.Errorf("it is renewed %v after the grant, before the hint %v", a.renewAt-epoch, due-epoch)
	}
}

// No answer to a leave is never success, however long it takes.
func TestLeaveWithoutAnAnswerIsNoSuccess(t *testing.T) {
	now := epoch
	a := aHeld(now)
	a.release(now, false)
	a.onLeave(&Result{Code: Unanswered}, now+second)
	a.tick(a.gone(), 0)
	if a.state != over || a.told != tellNoAnswer {
		t.Errorf("state %d, told %d; want no answer", a.state, a.told)
	}
}

// A release has an answer, or is told that there is none, within patience.
func TestPatience(t *testing.T) {
	now := epoch
	a := aLife()
	for a.state == entering {
		a.send()
		if now += 500 * time.Millisecond; now > epoch+patience+2*second {
			t.Fatalf("an enter is tried for more than %v", now-epoch)
		}
		a.onEnter(&Result{Code: Unanswered}, now-500*time.Millisecond, now)
		now = max(now, a.next)
	}
	if a.told != tellNoAnswer {
		t.Errorf("told %d after the patience with an enter", a.told)
	}
	a = aQueued(epoch)
	a.onNews(&Result{Code: Granted, Term: second}, false, epoch, epoch+2*second)
	a.onLeave(&Result{Code: Unanswered}, epoch+2*second+patience+1)
	if a.told != tellNoAnswer {
		t.Errorf("told %d after the patience with the leave of a late grant", a.told)
	}
	g := asking{}
	if g.failed(false, epoch) || g.failed(false, epoch+askPatience) || !g.failed(false, epoch+askPatience+1) || !(&asking{}).failed(true, epoch) {
		t.Error("waiters give up at another time than after askPatience, or a refusal")
	}
}

// Whatever says that an attempt was revoked, its caller is told so.
func TestRevokedIsTold(t *testing.T) {
	revoked, now := &Result{Code: Revoked}, epoch
	a := aLife()
	a.send()
	a.onEnter(revoked, now, now)
	if a.told != tellRevoked {
		t.Errorf("by the enter: %d", a.told)
	}
	a = aQueued(now)
	a.onNews(revoked, true, now, now)
	if a.told != tellRevoked {
		t.Errorf("by the ask: %d", a.told)
	}
	a = aQueued(now)
	a.confirms = true
	a.onNews(&Result{Code: Granted, Term: a.ttl}, false, now, now)
	a.onRenew(revoked, a.ttl, now, now)
	if a.told != tellRevoked {
		t.Errorf("by the renewal of an untaken lease: %d", a.told)
	}
	a = aLife()
	a.send()
	a.onNews(&Result{Code: Granted, Term: a.ttl}, false, now, now)
	if a.onEnter(revoked, now, now); a.state != lost || a.why != byRevoker {
		t.Errorf("by the enter, after a grant: state %d, why %d", a.state, a.why)
	}
	a = aQueued(now)
	a.onNews(&Result{Code: Granted, Term: second}, false, now, now+2*second)
	if a.told != waitOn {
		t.Errorf("a late grant: told %d before the leave is answered", a.told)
	}
	if a.onLeave(revoked, now+2*second); a.told != tellRevoked {
		t.Errorf("by the leave of a late grant: %d", a.told)
	}
	a = aQueued(now)
	a.onNews(&Result{Code: Granted, Term: second}, false, now, now+2*second)
	if a.onLeave(&Result{Code: Held}, now+2*second); a.told != tellAgain {
		t.Errorf("a late grant that was given back: %d", a.told)
	}
}

// Redis counts a term from when the call runs, so it may keep the lease for a term after the
// answer came, or after the time of a call without one.
func TestUntil(t *testing.T) {
	sent, now := epoch, epoch+second
	a := aLife()
	a.send()
	a.onEnter(&Result{Code: Granted, Term: a.ttl}, sent, now)
	if a.until != now+a.ttl || a.deadline != sent+a.ttl-margin(a.ttl) {
		t.Errorf("by an enter: until %v, deadline %v", a.until-now, a.deadline-sent)
	}
	a = aQueued(sent)
	a.onNews(&Result{Code: Granted, Term: a.ttl}, true, sent, now)
	if a.until != now+a.ttl {
		t.Errorf("by an ask: until %v", a.until-now)
	}
	for _, code := range []Code{Granted, Unanswered} {
		a = aHeld(sent)
		a.onRenew(&Result{Code: code, Term: 10 * second}, 10*second, sent, now)
		if a.until != now+10*second {
			t.Errorf("by a renewal (%d): until %v", code, a.until-now)
		}
	}
	a = aHeld(sent)
	before := a.deadline
	a.onRenew(&Result{Code: Granted, Term: second}, second, sent, now)
	if a.deadline != before {
		t.Error("an older answer moved the deadline back")
	}
}

// An attempt that left the queue gave its place back: that is no success of a release, for the
// lease was lost before.
func TestReleaseThatFindsAPlace(t *testing.T) {
	now := epoch
	a := aHeld(now)
	a.release(now, false)
	a.resent = true
	if a.onLeave(&Result{Code: Queued}, now); a.told != tellLost {
		t.Errorf("told %d", a.told)
	}
}

// Close gives back what its holder has. A grant that nobody has taken is its caller's, who
// hears that the handle is closed.
func TestCloseAndAGrantThatNobodyHasTaken(t *testing.T) {
	now := epoch
	a := aQueued(now)
	a.attached = true
	a.onNews(&Result{Code: Granted, Term: a.ttl}, false, now, now)
	if fx := a.giveBack(byClose, now); fx != 0 || a.state != held {
		t.Errorf("Close: effect %b, state %d", fx, a.state)
	}
	a.leave(now)
	if a.detach(0, now); a.state != leaving || a.next != now {
		t.Errorf("its caller left: state %d", a.state)
	}
}

// A deadline that has passed counts before whatever else comes, even if nobody has noticed yet.
func TestDeadlineIsNoticedFirst(t *testing.T) {
	a := aHeld(epoch)
	after := a.deadline
	if was, fx := a.release(after, false); was != lost || fx&ended == 0 || a.why != byDeadline || a.state != leaving || a.next != after {
		t.Errorf("a release: was %d, effect %b, why %d, state %d", was, fx, a.why, a.state)
	}
	a = aHeld(epoch)
	if fx := a.giveBack(byClose, after); fx != ended || a.state != lost || a.why != byDeadline {
		t.Errorf("Close: effect %b, state %d, why %d", fx, a.state, a.why)
	}
	a = aQueued(epoch)
	a.onNews(&Result{Code: Granted, Term: a.ttl}, false, epoch, epoch)
	if do, fx := a.look(after); do == lookTake || fx != late || a.state != leaving {
		t.Errorf("a look: %d, effect %b, state %d", do, fx, a.state)
	}
}

// A leave that finds nothing proves that the lease was lost only if no other leave can have given
// it back, and no time.
func TestReleaseIsAnsweredByTheOnlyLeave(t *testing.T) {
	gone, now := &Result{Code: Gone}, epoch
	released := func() *life {
		a := aHeld(now)
		a.release(now, false)
		return a
	}
	a := released()
	if a.onLeave(gone, now); a.told != tellLost {
		t.Errorf("the only leave: told %d", a.told)
	}
	a = released()
	a.onLeave(&Result{Code: Gone, Copied: true}, now)
	if a.told != tellDone {
		t.Errorf("a leave of which a copy may run: told %d", a.told)
	}
	a = released()
	if a.onLeave(gone, a.deadline); a.told != tellDone {
		t.Errorf("a leave that was answered after the deadline: told %d", a.told)
	}
	a = released()
	a.onLeave(&Result{Code: Unanswered}, now)
	a.tick(a.next, 0)
	if a.onLeave(gone, a.next); a.told != tellDone {
		t.Errorf("a leave after one without an answer: told %d", a.told)
	}
	a = released()
	a.onLeave(&Result{Code: NotSent}, now)
	now = a.next
	a.tick(now, 0)
	now = a.next
	if do, _ := a.tick(now, 0); do != toLeave {
		t.Fatalf("the leave is not repeated")
	}
	if a.onLeave(gone, now); a.told != tellDone {
		t.Errorf("the answer to the second leave comes first: told %d", a.told)
	}
	now = epoch
	a = released()
	if do, _ := a.tick(now+second, 0); do != nothing {
		t.Error("a leave is sent beside the releaser's own")
	}
}

// While its caller looks, sends and is told, a grant may come, and the enter is not wanted.
func TestEnterIsNotWantedAfterAGrant(t *testing.T) {
	a := aLife()
	if do, _ := a.look(epoch); do != lookSend {
		t.Fatalf("look says %d", do)
	}
	a.onNews(&Result{Code: Granted, Term: a.ttl}, false, epoch, epoch)
	if a.send() {
		t.Error("an enter is sent for an attempt that has a lease")
	}
}

// A grant in the reply to another call finds an attempt whose enter is under way. Its caller
// withdraws that enter or notes until when it may run, and only then takes the lease. So the
// leave is repeated for a term after that.
func TestGrantWhileAnEnterFlies(t *testing.T) {
	now := epoch
	a := aQueued(now)
	a.onNews(&Result{Code: Gone}, true, now, now)
	a.attached = true
	a.send()
	a.onNews(&Result{Code: Granted, Term: a.ttl}, false, now, now)
	if do, _ := a.look(now); do != lookDetach {
		t.Fatalf("look says %d; want a detach", do)
	}
	void := now + voidAfter
	a.detach(void, now)
	if do, _ := a.look(now); do != lookTake {
		t.Fatalf("look says %d; want to take", do)
	}
	a.take(now)
	a.release(now, false)
	if a.gone() != void+a.ttl {
		t.Errorf("leaves go on for %v; want a term after the enter is void", a.gone()-now)
	}
}

// An answer without a lease leaves nothing behind, unless a copy of an earlier enter may run.
func TestAnswerWithoutALease(t *testing.T) {
	now := epoch
	for code, want := range map[Code]verdict{Busy: tellAnswer, GivenUp: tellAgain, Revoked: tellRevoked} {
		a := aLife()
		a.send()
		a.onEnter(&Result{Code: code}, now, now)
		if a.detach(0, now); a.told != want || a.state != over || !a.settled {
			t.Errorf("%d: told %d, state %d", code, a.told, a.state)
		}
		a = aLife()
		a.send()
		a.onEnter(&Result{Code: Unanswered}, now, now+second)
		a.send()
		a.onEnter(&Result{Code: code}, now+second, now+second)
		if a.detach(0, now+second); a.told != want || a.state != leaving || a.gone() < now+voidAfter+a.ttl {
			t.Errorf("%d after an enter without an answer: told %d, state %d", code, a.told, a.state)
		}
	}
}

// A renewal whose outcome comes when the leaves have ended without an answer may have prolonged
// the lease, so they begin again.
func TestRenewalAfterTheLeaves(t *testing.T) {
	for _, code := range []Code{Granted, Unanswered} {
		a := aHeld(epoch)
		a.release(epoch, false)
		a.onLeave(&Result{Code: Unanswered}, epoch+second)
		end := a.gone()
		if a.tick(end, 0); a.state != over {
			t.Fatalf("state %d after the term", a.state)
		}
		a.onRenew(&Result{Code: code, Term: a.ttl}, a.ttl, epoch, end)
		last := end
		if code == Unanswered { // a copy of it may still run
			last = max(end, epoch+voidAfter)
		}
		if do, _ := a.tick(end, 0); do != toLeave || a.gone() != last+a.ttl {
			t.Errorf("a renewal (%d): duty %d, until %v", code, do, a.gone()-end)
		}
	}
}
