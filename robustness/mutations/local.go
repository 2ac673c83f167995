package main

// localTurns are the guards of turns that stay in a process.
var localTurns = []mutation{
	{
		name: "turns stay no longer than LocalFor", file: "internal/localturns/line.go",
		old: "now.After(v.until) && !ln.mayRest(v, now) || ", new: "",
		packages: localTests, tests: turnTests,
	},
	{
		name: "the first turn, too, begins within LocalFor", file: "internal/localturns/line.go",
		old: "now.After(v.until) &&", new: "v.served && now.After(v.until) &&",
		packages: "./internal/localturns", tests: "TestFirstTurn",
	},
	{
		name: "a lease is given back and asked for again in one step", file: "internal/lease/turns.go",
		old: "if clock != nil {", new: "if clock == nil || clock != nil {",
		packages: localTests,
	},
	{
		name: "the enter goes before the leave", file: "internal/lease/turns.go",
		old: "replies, errs := m.single.DoBoth(m.client.Brief(), e.call, leave)\n", new: "replies, errs := m.single.DoBoth(m.client.Brief(), leave, e.call)\n\treplies[0], replies[1], errs[0], errs[1] = replies[1], replies[0], errs[1], errs[0]\n",
		packages: localTests,
	},
	{
		name: "a leave carries the last token", file: "internal/localturns/turn.go",
		old: "\tv.lease.SetLastToken(v.lastToken)\n", new: "",
		packages: localTests,
	},
	{
		name: "the fence is set to the last token", file: "luascripts/permits/leave_turns.lua",
		old: "  redis.call('SET', fence, ARGV[4], 'PX', FENCE_KEPT)\n", new: "",
		packages: localTests, tests: turnTests,
	},
	{
		name: "tokens of turns are not ahead of the clock", file: "internal/localturns/turn.go",
		old: "if first == 0 || v.lastToken <", new: "if true || v.lastToken <",
		packages: localTests, tests: turnTests,
	},
	{
		name: "a turn that was lost before its caller knew of it is not handed out", file: "internal/localturns/localturns.go",
		old: "	if t.cond != lost {", new: "	if true {",
		packages: "./internal/tests/contract/semaphore", tests: "TestATurnThatIsOver",
	},
	{
		name: "a lease that the server forgot serves no more turns", file: "internal/lease/attempt.go",
		old: "if a.Turns != nil && a.life.why != byHolder {", new: "if false {",
		packages: localTests, tests: "TestTurnsEndAfter|TestALostLease",
	},
	{
		name: "an unlock that enters again tells why its lease is gone", file: "internal/lease/turns.go",
		old: "\tonLeft(l.a.awaitLeave(op))\n", new: "\tleft := l.a.awaitLeave(op)\n\tif left != nil {\n\t\tleft = m.fail(op, res.Label(), leasehold.ErrLost, errGone)\n\t}\n\tonLeft(left)\n",
		packages: localTests, tests: "TestUnlockOfARevokedTurn",
	},
	{
		name: "a turn ends in the step of its lease", file: "internal/localturns/turn.go",
		old: "			t.visit.lease.CancelAtEnd(t.cancel)\n", new: "",
		packages: "./internal/localturns", tests: "TestTurnEndsInTheStep",
	},
	{
		name: "a turn whose lease has ended is not released as if it was held", file: "internal/localturns/turn.go",
		old: "	t.noticeEnd()\n	was := t.cond", new: "	was := t.cond",
		packages: "./internal/localturns", tests: "TestTurnEndsInTheStep",
	},
	{
		name: "the Observer is told the end of turns that began", file: "internal/localturns/turn.go",
		old: "	if t.handed {\n		t.line.h.m.Events().Tell", new: "	if true {\n		t.line.h.m.Events().Tell",
		packages: localTests, tests: "TestEachTurnThatBegins",
	},
	{
		name: "a turn that MaxHold ends is told of", file: "internal/localturns/turn.go",
		old: "	if t.handed {\n		v.lease.TurnHeldTooLong()", new: "	if false {\n		v.lease.TurnHeldTooLong()",
		packages: localTests, tests: "TestObserverAndLog",
	},
	{
		name: "the line of a TryLock under way is kept", file: "internal/localturns/line.go",
		old: "ln.tries > 0 || ", new: "",
		packages: localTests, tests: "TestLineOfATryLock",
	},
	{
		name: "places that were cancelled do not count", file: "internal/localturns/places.go",
		old: "		if !p.cancelled {\n			excess++", new: "		if p != nil {\n			excess++",
		packages: "./internal/localturns",
	},
	{
		name: "a stale release is told of, also by a process that queues again", file: "internal/lease/release.go",
		old: "\t\ta.tellStale()\n\t\treturn a.fail(op)\n", new: "\t\treturn a.fail(op)\n",
		packages: localTests, tests: "TestReleaseOfALostTurn",
	},
	{
		name: "waiters are told in the package's errors that a goroutine was ended", file: "internal/localturns/places.go",
		old: "				err = ln.h.m.Reject(p.op, ln.key, leasehold.ErrUnavailable, err)", new: "				_ = p",
		packages: localTests, tests: "TestGoroutineThatQueuesAgain",
	},
	{
		name: "a place belongs to the process", file: "internal/localturns/places.go",
		old:      "		placeCtx, cancel := context.WithCancel(context.Background())",
		new:      "		placeCtx, cancel := context.WithCancel(ctx)",
		packages: localTests, tests: turnTests,
	},
	{
		name: "a waiter that leaves passes the turn on", file: "internal/localturns/line.go",
		old:      "		t.end(released, leasehold.ErrReleased)\n		ln.passOn(v)",
		new:      "		t.end(released, leasehold.ErrReleased)\n		_ = v",
		packages: localTests, tests: turnTests,
	},
	{
		name: "MaxHold is each turn's", file: "internal/lease/attempt.go",
		old: "if of.Turns == nil { // each turn", new: "if true { // each turn",
		packages: localTests,
	},
	{
		name: "an extended lease is not passed on", file: "internal/localturns/line.go",
		old: "v.served && !(v.mayServeAgain() && v.nextTokenIsDue())", new: "v.served && !v.nextTokenIsDue()",
		packages: localTests, tests: turnTests,
	},
	{
		name: "a lost lease is replaced", file: "internal/localturns/turn.go",
		old:      "		t.end(cond, nil)\n	}\n	ln.takePlaces()",
		new:      "		t.end(cond, nil)\n	}",
		packages: localTests, tests: turnTests,
	},
	{
		name: "MaxWaiters does not refuse a process that queues again", file: "internal/lease/enter.go",
		old: "if at.ticket != 0 || c.again {", new: "if at.ticket != 0 {",
		packages: localTests,
	},
	{
		name: "a process asks whether others wait", file: "internal/localturns/line.go",
		old: "if v.alone = use.Waiting == 0 && use.InUse", new: "if v.alone = use.InUse",
		packages: localTests, tests: turnTests,
	},
	{
		name: "a token ahead of the clock is not counted on", file: "internal/localturns/turn.go",
		old: "v.oneTurn = v.oneTurn || v.lease.TokenAheadOfClock()", new: "",
		packages: localTests, tests: turnTests,
	},
	{
		name: "a limit that was lowered takes leases back", file: "internal/localturns/line.go",
		old: "use.Waiting == 0 && use.InUse <= use.Limit", new: "use.Waiting == 0",
		packages: localPermitTests, tests: turnTests,
	},
	{
		name: "a limit that was raised is learned", file: "internal/localturns/line.go",
		old: "		ln.learnLimit(use.Limit)\n", new: "",
		packages: localPermitTests, tests: turnTests,
	},
	{
		name: "MaxWaiters does not count what Redis is about to grant", file: "internal/localturns/line.go",
		old: "if p.queued == nil && !p.again {", new: "if false && p.queued == nil && !p.again {",
		packages: localPermitTests, tests: turnTests,
	},
}
