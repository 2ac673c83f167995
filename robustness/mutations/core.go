package main

// Where the bugs of the core are noticed: by the explorer, which walks the orders of events, or
// by a few courses that it can not judge.
const (
	coreTests = "./internal/lease"
	lifeFile  = "internal/lease/life.go"
	heldFile  = "internal/lease/life_held.go"
)

// core are bugs in the state machine of an attempt, and in what drives it.
var core = []mutation{
	{
		name: "core: a renewal's deadline counts from its sending", file: heldFile,
		old: "max(a.deadline, sent+r.Term-margin(r.Term))", new: "max(a.deadline, now+r.Term-margin(r.Term))",
		packages: coreTests, tests: "TestExplorer",
	},
	{
		name: "core: an older answer moves no deadline back", file: heldFile,
		old: "max(a.deadline, sent+r.Term-margin(r.Term))", new: "sent + r.Term - margin(r.Term)",
		packages: coreTests, tests: "TestUntil",
	},
	{
		name: "core: any other grant lasts from its receipt", file: heldFile,
		old: "a.until = max(a.until, now+r.Term)\n\ta.deadline", new: "a.until = max(a.until, sent+r.Term)\n\ta.deadline",
		packages: coreTests, tests: "TestUntil",
	},
	{
		name: "core: a renewal lasts from its receipt", file: heldFile,
		old: "\tcase Granted:\n\t\ta.until = max(a.until, now+r.Term)\n", new: "\tcase Granted:\n\t\ta.until = max(a.until, sent+r.Term)\n",
		packages: coreTests, tests: "TestUntil",
	},
	{
		name: "core: an unanswered renewal may have run just now", file: heldFile,
		old: "a.until = max(a.until, now+term)", new: "a.until = max(a.until, sent+term)",
		packages: coreTests, tests: "TestUntil",
	},
	{
		name: "core: a late renewal has the leaves begin again", file: heldFile,
		old: "if a.state == over && !a.settled && a.until > now {", new: "if false {",
		packages: coreTests, tests: "TestRenewalAfterTheLeaves",
	},
	{
		name: "core: an enter without an answer may run", file: lifeFile,
		old: "a.runs = max(a.runs, sent+voidAfter)", new: "_ = voidAfter",
		packages: coreTests, tests: "TestExplorer",
	},
	{
		name: "core: an enter that flies may run after its caller has left", file: lifeFile,
		old: "\t\ta.runs = max(a.runs, void)\n", new: "",
		packages: coreTests, tests: "TestExplorer",
	},
	{
		name: "core: a caller whose enter flies is detached before it takes", file: lifeFile,
		old: "case a.flying && a.attached:", new: "case false:",
		packages: coreTests, tests: "TestGrantWhileAnEnterFlies",
	},
	{
		name: "core: an answer ends nothing while a copy may run", file: lifeFile,
		old: "a.runs == 0 && (a.told", new: "(a.told",
		packages: coreTests, tests: "TestAnswerWithoutALease",
	},
	{
		name: "core: a place may be granted until it is dead", file: lifeFile,
		old: "a.next, a.until = now, max(a.until, now+max(a.ttl, voidAfter))", new: "a.next = now",
		packages: coreTests, tests: "TestExplorer",
	},
	{
		name: "core: an enter is not sent when a grant has come", file: lifeFile,
		old: "if a.state != entering || a.flying {", new: "if a.flying {",
		packages: coreTests, tests: "TestEnterIsNotWanted",
	},
	{
		name: "core: an enter that was given up begins a new attempt", file: lifeFile,
		old: "return fx | a.drop(tellAgain)", new: "return fx | a.unanswered(r, sent, now)",
		packages: coreTests, tests: "TestAnswerWithoutALease",
	},
	{
		name: "core: a revoked waiter's enter is told so", file: lifeFile,
		old: "return fx | a.drop(tellRevoked)", new: "return fx | a.drop(tellAgain)",
		packages: coreTests, tests: "TestRevokedIsTold",
	},
	{
		name: "core: a revoked waiter's ask is told so", file: lifeFile,
		old: "\tcase Revoked:\n\t\treturn a.drop(tellRevoked)\n", new: "\tcase Revoked:\n\t\ta.state, a.next = entering, now\n\t\treturn wake\n",
		packages: coreTests, tests: "TestRevokedIsTold",
	},
	{
		name: "core: an enter that says revoked ends what another reply granted", file: lifeFile,
		old: "case a.state == held && r.Code == Revoked:", new: "case false:",
		packages: coreTests, tests: "TestRevokedIsTold",
	},
	{
		name: "core: a late grant is followed by a new attempt once its leave is answered", file: heldFile,
		old: "leaving, waitOn, a.waits, now, 0", new: "leaving, tellAgain, a.waits, now, 0",
		packages: coreTests, tests: "TestRevokedIsTold",
	},
	{
		name: "core: waiters have patience", file: lifeFile,
		old: " || now-a.since+pause > patience", new: "",
		packages: coreTests, tests: "TestPatience",
	},
	{
		name: "core: so do those that wait for a leave", file: heldFile,
		old: " || now-a.since > patience", new: "",
		packages: coreTests, tests: "TestPatience",
	},
	{
		name: "core: so do groups", file: "internal/lease/group.go",
		old: "return refused || now-g.since > askPatience", new: "return refused",
		packages: coreTests, tests: "TestPatience",
	},
	{
		name: "core: a deadline that has passed comes before a release", file: heldFile,
		old: "\tfx = a.notice(now)\n\tswitch {\n\tcase a.released ||", new: "\tswitch {\n\tcase a.released ||",
		packages: coreTests, tests: "TestDeadlineIsNoticed",
	},
	{
		name: "core: a deadline that has passed comes before a look", file: lifeFile,
		old: "\tfx = a.notice(now) &^ wake\n", new: "",
		packages: coreTests, tests: "TestDeadlineIsNoticed",
	},
	{
		name: "core: a deadline that has passed comes before Close", file: heldFile,
		old: "\tfx = a.notice(now)\n\tswitch {\n\tcase a.state == held && a.taken:", new: "\tswitch {\n\tcase a.state == held && a.taken:",
		packages: coreTests, tests: "TestDeadlineIsNoticed",
	},
	{
		name: "core: what comes while it enters is not forgotten", file: lifeFile,
		old: "if a.asks || fx != 0 {", new: "if fx != 0 {",
		packages: coreTests, tests: "TestHintBrings",
	},
	{
		name: "core: hints are spaced", file: lifeFile,
		old: "max(now, a.renewedAt+hintPause)", new: "now",
		packages: coreTests, tests: "TestHintBrings",
	},
	{
		name: "core: a hint ends no lease", file: lifeFile,
		old: "\tcase held:\n\t\tif at := max(", new: "\tcase held:\n\t\ta.state = lost\n\t\tif at := max(",
		packages: coreTests, tests: "TestHintBrings",
	},
	{
		name: "core: the reply to an ask puts no hint off", file: "internal/lease/group.go",
		old: "g.sent, g.got, g.fails, g.firstEnd = sent, got, 0, 0", new: "g.sent, g.got, g.fails, g.firstEnd, g.hinted = sent, got, 0, 0, 0",
		packages: coreTests, tests: "TestHintBrings",
	},
	{
		name: "core: a message is not believed while it enters", file: "internal/lease/group.go",
		old: "\tcase a.state == queued:\n\t\ta.believe(text)\n", new: "\tcase a.state <= queued:\n\t\tif a.group == nil {\n\t\t\ta.group = &group{m: m, res: a.res, clock: call.Sample{Micros: time.Now().UnixMicro(), Sent: time.Now(), Got: time.Now()}}\n\t\t}\n\t\ta.believe(text)\n",
		packages: coreTests, tests: "TestMessageWhileItEnters",
	},
	{
		name: "core: a release's own leave is under way", file: heldFile,
		old: "= now, never, 0, 1\n", new: "= now, now, 0, 0\n",
		packages: coreTests, tests: "TestExplorer|TestReleaseIsAnswered",
	},
	{
		name: "core: a second leave that is sent may be answered first", file: heldFile,
		old: "\t\ta.resent = a.resent || a.underWay > 0 // the answer to the second may come first\n", new: "",
		packages: coreTests, tests: "TestExplorer|TestReleaseIsAnswered",
	},
	{
		name: "core: a leave without an answer may have run", file: heldFile,
		old: "\tif r.Copied || r.Code == Unanswered {\n\t\ta.resent = true\n\t}\n", new: "",
		packages: coreTests, tests: "TestExplorer|TestReleaseIsAnswered",
	},
	{
		name: "core: a copy of a leave may have run", file: heldFile,
		old: "!a.resent && !r.Copied && now", new: "!a.resent && now",
		packages: coreTests, tests: "TestExplorer|TestReleaseIsAnswered",
	},
	{
		name: "core: a leave that is answered after the deadline proves no loss", file: heldFile,
		old: " && now < a.deadline || a.complete", new: " || a.complete",
		packages: coreTests, tests: "TestExplorer|TestReleaseIsAnswered",
	},
	{
		name: "core: no answer to a leave is no success", file: heldFile,
		old: "a.told, fx = tellNoAnswer, wake", new: "a.told, fx = tellDone, wake",
		packages: coreTests, tests: "TestLeaveWithoutAnAnswer",
	},
	{
		name: "core: a release that finds a place is none of a lease", file: heldFile,
		old: "(sure || r.Code == Queued)", new: "sure",
		packages: coreTests, tests: "TestReleaseThatFinds",
	},
	{
		name: "core: a lost lease is given back by its release", file: heldFile,
		old: "case a.state == lost && !closed:", new: "case false:",
		packages: coreTests, tests: "TestExplorer|TestDeadlineIsNoticed",
	},
	{
		name: "core: Close leaves what nobody has taken to its caller", file: heldFile,
		old: "case a.state == held && a.taken:", new: "case a.state == held:",
		packages: coreTests, tests: "TestCloseAndAGrant",
	},
	{
		name: "core: a waiter that joined after a lost reply asks, too", file: "internal/lease/group.go",
		old: "if m.missed >= sent {", new: "if false {",
		packages: coreTests, tests: "TestWaiterThatJoinsAfter",
	},
	{
		name: "core: a message before the subscription is asked for", file: "internal/lease/group.go",
		old: "if !m.inbox.Watch(name).Before(m.time(sent)) {", new: "if m.inbox.Watch(name).IsZero() && false {",
		packages: "./internal/tests/contract/semaphore", tests: "TestGrantBeforeTheSubscription",
	},
	{
		name: "core: a copy's tombstone lasts as long as the copy", file: "internal/lease/enter.go",
		old: "if r.Copied || r.Code == Unanswered {", new: "if false {",
		packages: "./internal/tests/faults/semaphore", tests: "TestLateEnter", servers: true,
	},
}
