package main

// mutation is one guard, and how to take it out.
type mutation struct {
	name     string
	file     string // of the module
	old, new string // old is there exactly once
	packages string // whose tests should notice, tried in this order
	tests    string // which of them, a regular expression; "" = all
	servers  bool   // they need real ones
	seeds    int    // of a randomised test; 0 = 10
}

// cut is a mutation whose tests need no servers.
func cut(name, file, packages, tests, old, new string) mutation {
	return mutation{name: name, file: file, packages: packages, tests: tests, old: old, new: new}
}

func cutOnServers(name, file, packages, tests, old, new string) mutation {
	m := cut(name, file, packages, tests, old, new)
	m.servers = true
	return m
}

// The packages with the tests that notice most of the guards.
const (
	scriptTests = "./internal/tests/scripts"
	callTests   = "./internal/call"
	lifeTests   = "./internal/life"
	leaseTests  = "./internal/lease"
	permitTests = "./internal/tests/contract/semaphore"
	lockTests   = "./internal/tests/contract/mutex"
	cacheTests  = "./internal/tests/contract/singleflight"
	faults      = "./internal/tests/faults"
	simulation  = "./internal/tests/simulation"

	leases = scriptTests + " " + leaseTests + " " + simulation
	cache  = cacheTests + " " + simulation
	loads  = scriptTests + " " + cache
)

// The tests of local turns.
const (
	turnTests       = "Local|Turn|Place|ALease|GivingBack|ExtendedLease|LostLease|Locks|AToken|MaxWaitersOf|MaxWaitOf"
	permitTurnTests = "Turn|Place|ALease|ALimit|ARaised|MaxWaitersOf|MaxWaitersIs"
)

// sampled are the guards that -sample draws from: those of the permits' scripts, of families with a total and
// of listings. The others are tried by name, or all together.
var sampled = concat(scripts, totals, listed)

var mutations = concat(scripts, client, flightScripts, flights, totals, listed, telemetry, replicas, localTurns, inboxes, revoked, commands, queue, outages, once, several, near, kept, votes, walked, core)

func concat(all ...[]mutation) (list []mutation) {
	for _, some := range all {
		list = append(list, some...)
	}
	return list
}

// scripts are the guards of the permits' scripts.
var scripts = []mutation{
	cut("void time of an enter", "luascripts/permits/shared/enter.lua", scriptTests, "",
		"if void_from > 0 and us >= void_from then", "if false then"),
	cut("tombstone refuses a stray enter", "luascripts/permits/shared/enter.lua", scriptTests, "",
		"if sign and not queued then\n", "if false then\n"),
	cut("a leave leaves a tombstone", "luascripts/permits/shared/give_back.lua", scriptTests, "",
		"if copies_until > now then bury", "if false then bury"),
	cut("a retried enter finds its own lease", "luascripts/permits/shared/enter.lua", scriptTests, "",
		"if expiry > now then\n", "if false then\n"),
	cut("a retried enter gets the same token", "luascripts/permits/shared/enter.lua", scriptTests, "",
		"  local token = current_token()\n  return token and {", "  local token = fenced and issue_token() or 0\n  return token and {"),
	cut("the limit, on the fast path", "luascripts/permits/shared/enter.lua", leases, "",
		"if held < tonumber(ARGV[4]) and", "if"),
	cut("the limit, behind it", "luascripts/permits/shared/enter.lua", leases, "",
		"in_use() + permits <= limit and not has_live_waiter()", "not has_live_waiter()"),
	cut("newcomers don't pass the queue", "luascripts/permits/shared/enter.lua", scriptTests, "",
		"in_use() + permits <= limit and not has_live_waiter()", "in_use() + permits <= limit"),
	cut("the limit, when handing over", "luascripts/permits/shared/queue.lua", leases, "",
		"if waiting_handle and n <= limit and in_use() + n > limit then return end", ""),
	cut("a head that can't be served is removed", "luascripts/permits/shared/queue.lua", scriptTests, "",
		"if n > limit then", "if false then"),
	cut("the stored limit goes first", "luascripts/permits/shared/queue.lua", scriptTests, "",
		"return tonumber(stored) or own_limit", "return own_limit"),
	cut("the fence keeps tokens rising", "luascripts/permits/shared/issue_token.lua", scriptTests, "",
		"if last >= us then", "if false then"),
	cut("a spent fence issues no token", "luascripts/permits/shared/issue_token.lua", faults, "TestFence",
		"if token > 9007199254740991 then", "if false then"),
	cut("a spent fence is put back", "luascripts/permits/shared/issue_token.lua", faults, "TestFence",
		"token or before, 'PX'", "token or us, 'PX'"),
	cut("tokens are whole numbers", "luascripts/permits/shared/issue_token.lua", faults, "TestFence",
		"math.floor(last) + 1", "last + 1"),
	cut("a leave gives back beside a spent fence", "luascripts/permits/shared/give_back.lua", faults, "TestFence",
		"if not token then return { 1, us } end", "if not token then return no_token end"),
	cut("waiters are told of a spent fence", "luascripts/permits/ask.lua", faults, "TestFence",
		"if spent then return spent end -- the head", "spent = nil -- the head"),
	cut("a lock is handed over if nobody holds it", "luascripts/permits/shared/give_back.lua", scriptTests, "TestLateLeave",
		"held_without_copies and fenced and redis.call('EXISTS', holders) == 0", "held_without_copies and fenced"),
	cut("and to a living waiter", "luascripts/permits/shared/give_back.lua", scriptTests, "",
		"if next_handle and alive_for > OVERDUE then", "if next_handle then"),
	cut("on probation", "luascripts/permits/shared/give_back.lua", scriptTests, "",
		"if next_handle ~= handle then term = math.min(term, PROBATION, alive_for - SILENCE) end", ""),
	cut("a stray's tombstone is left beside a hand-over", "luascripts/permits/shared/give_back.lua", scriptTests, "",
		"local held_without_copies = given_back > 0 and ARGV[3] == '0'", "local held_without_copies = given_back > 0"),
	cut("a grant's key expires with its last permit", "luascripts/permits/shared/queue.lua", scriptTests, "",
		"    keep(holders, now + term)\n", "    redis.call('PEXPIREAT', holders, now + term)\n"),
	cut("probation of a granted waiter", "luascripts/permits/shared/queue.lua", scriptTests, "",
		"waiting_handle == handle and ttl or math.min(ttl, PROBATION, alive_for - SILENCE)", "ttl"),
	cut("overdue waiters are passed over", "luascripts/permits/shared/queue.lua", scriptTests, "",
		"    if alive_for <= OVERDUE then\n      if looked_at", "    if alive_for <= 0 then\n      if looked_at"),
	cut("overdue waiters are parked", "luascripts/permits/shared/queue.lua", scriptTests, "",
		"if #parked > 0 then", "if false then"),
	cut("a call that stops at a bound says so", "luascripts/permits/shared/queue.lua", scriptTests, "",
		"  if more then\n", "  if false then\n"),
	cut("a parked waiter comes back with its sign of life", "luascripts/permits/ask.lua", scriptTests, "",
		"if ticket >= 0 then", "if false then"),
	cut("a newcomer stands behind parked waiters", "luascripts/permits/shared/enter.lua", scriptTests, "",
		"last_ticket = math.max(last_ticket - PARKED, tonumber(unparked or 0))", "last_ticket = tonumber(unparked or 0)"),
	cut("a first term ends soon after the last sign", "luascripts/permits/shared/give_back.lua", scriptTests, "",
		"PROBATION, alive_for - SILENCE", "PROBATION"),
	cut("dead waiters are dropped", "luascripts/shared/purge_waiters.lua", scriptTests, "",
		"    redis.call('ZREM', queue, unpack(gone))", ""),
	cut("dead holders are passed", "luascripts/permits/shared/queue.lua", scriptTests, "TestModelOfPermits",
		"counted = counted or redis.call('ZCOUNT', holders, '(' .. now, '+inf')", "counted = counted or redis.call('ZCARD', holders)"),
	cut("a renewal never revives", "luascripts/permits/shared/push_expiry.lua", scriptTests, "",
		"if expiry <= now then return 0 end", ""),
	cut("a renewal never shortens", "luascripts/permits/shared/push_expiry.lua", scriptTests, "",
		"if till <= expiry then return expiry - now end", ""),
	cut("expiries of keys only grow", "luascripts/permits/shared/enter.lua", scriptTests, "",
		"redis.call('PEXPIREAT', holders, now + ttl, 'GT')", "redis.call('PEXPIREAT', holders, now + ttl)"),
	cut("tickets rise", "luascripts/permits/shared/enter.lua", scriptTests, "",
		"ticket = math.max(us, last_ticket + 1)", "ticket = us"),
	cut("a waiter's old ticket counts", "luascripts/permits/shared/enter.lua", leases, "",
		"ticket = tonumber(ticket)", "ticket = 0"),
	cut("a guard compares tokens", "luascripts/guard/set.lua", lockTests, "TestGuard",
		"then return { 0 } end", "then end"),
}

// client are the guards of the Go code of calls and leases.
var client = []mutation{
	cut("scripts are sent once", "internal/call/command.go", callTests, "SentOnce",
		"t.failures.Add(1); return true }", "t.failures.Add(1); return false }"),
	cut("a server that forgets is taught again", "internal/call/pipeline.go", callTests, "",
		"unknown = send(unknown)", "unknown = nil"),
	cut("only a reply is an answer", "internal/call/call.go", callTests, "",
		"\tcase o.err == nil && none && !asked:\n\t\to.err = NotSent(trip)\n\tcase o.err == nil && none:\n\t\to.err = noReply(trip)\n",
		"\tcase false:\n\t\t_ = none\n"),
	cut("an entry that is due earlier moves the timer", "internal/schedule/loop.go", "./internal/schedule", "Earlier",
		"at >= l.wakeAt || !l.timer.Stop()", "true"),
	cut("one task of a schedule is due at a time", "internal/schedule/loop.go", "./internal/schedule", "CloseDuringDue",
		"at >= l.wakeAt || !l.timer.Stop()", "at >= l.wakeAt"),
	cut("Close during Due is not forgotten", "internal/schedule/loop.go", "./internal/schedule", "",
		"if !next.After(now) || l.closedDuringDue {", "if !next.After(now) {"),
	cut("the margin before the deadline", "internal/life/held.go", leases, "",
		"return max(12*time.Millisecond, term/40)", "return 0"),
	cut("a deadline counts from the sending", "internal/life/held.go", "./internal/life ./internal/lease", "TestExplorer|TestDeadlineCounts",
		"a.Deadline = sent + r.Term", "a.Deadline = now + r.Term"),
	cut("a message's time is mapped", "internal/lease/messages.go", leaseTests, "TestDeadlineOfAMessage",
		"\t\tfrom = min(from, m.moment(g.clock.Earliest(r.GrantedAt)))\n", ""),
	cut("a grant that comes too late is given back", "internal/life/waiting.go", lifeTests, "TestDeadlineIsNoticed",
		"if !a.taken { // between its grant and this look", "if false { // between its grant and this look"),
	cut("a lease that Close gives back is not returned", "internal/lease/acquire.go", permitTests, "TestAcquireDoesNotReturnALease",
		"if err != nil || !c.m.Closed() {", "if true {"),
	cut("a late grant of a try is no other holder", "internal/life/held.go", lockTests, "TestTryLockWhoseGrant",
		"\t\ta.Told = TellLate\n", "\t\ta.Told = TellAgain\n"),
	cut("a lease that was lost before Close stays lost", "internal/life/held.go", lockTests, "TestLossBeforeClose",
		"case a.State == Lost && why == ByHolder:", "case a.State == Lost:"),
	cut("no deadline is after MaxHold", "internal/lease/lease.go", lockTests, "TestMaxHoldEndsALock",
		"if !end.IsZero() && end.Before(t) {", "if false {"),
	cut("RetryAfter counts from when the error is made", "internal/lease/manager.go", lockTests, "TestRetryAfterIsNotAfter",
		"if !s.AsOf.IsZero() {", "if false {"),
	cut("a guard's value is that of its call", "mutex/guard.go", lockTests, "TestGuardWritesTheBytes",
		"return bytes.Clone(v), nil // the caller", "_ = bytes.Clone(v); return v, nil // the caller"),
	cut("nothing is given back at the deadline", "internal/life/held.go", leaseTests, "TestNothingIsGivenBack",
		"\t\treturn a.lose(ByDeadline, now)\n",
		"\t\tfx := a.lose(ByDeadline, now)\n\t\tif a.taken {\n\t\t\ta.State, a.Next, a.Told = Leaving, now, TellDone\n\t\t}\n\t\treturn fx\n"),
	cut("a waiter that leaves while its enter is under way gives back", "internal/life/waiting.go", lifeTests, "TestExplorer",
		"a.State, a.late = Leaving, true", "a.State, a.late = Over, true"),
	cut("a leave is repeated for a TTL after a late enter", "internal/life/leaving.go", lifeTests, "TestAnswerWithoutALease",
		"return max(a.until, a.runs+a.TTL)", "return max(a.until, a.runs)"),
	cut("a request without an answer is not busy", "internal/lease/acquire.go", permitTests, "TestSilentRedis",
		"if cause != nil && (fails > 0 || time.Since(c.asked) > life.Silence) {", "if false {"),
	cut("a queued request of a silent server is not busy", "internal/life/asking.go", permitTests, "TestSilentRedis",
		"return g.asked > g.sent && now-g.got", "return g.asked == 0 && now-g.got"),
	cut("an answer to an earlier turn is none to a later one", "internal/localturns/localturns.go", permitTests, "TestSilentRedis",
		"!ln.heard.Before(t.joined) && ", ""),
	cut("calls refused while credentials are rotated are repeated", "internal/call/errors.go", "./internal/call", "TestClasses",
		`, "WRONGPASS", "NOAUTH", "NOPERM",`, ","),
	cutOnServers("a leave names until when an enter may arrive", "internal/lease/enter.go", faults, "TestLate",
		"\t\tcase e != nil && at.life.Flying:\n\t\t\tat.void = max(at.void, e.void)\n", ""),
	cut(`a grant after "enter again" counts`, "internal/life/waiting.go", leaseTests, "TestGrantThatFollows",
		"if a.State != Waiting && (a.State != Entering || asked) {", "if a.State != Waiting {"),
	cut("a try without an answer is told of, though the next one was not sent", "internal/lease/acquire.go", lockTests, "TestCtxEndsBeforeTheNextTry",
		"\t\tcause = failure\n", "\t\tcause = nil\n"),
	cutOnServers("what was never sent is not given back", "internal/life/waiting.go", faults, "TestCtxEndsWhileACluster",
		"case a.enters == 0, a.runs == 0", "case a.runs == 0"),
	cut("a hook that ends its goroutine answers its caller", "internal/call/wait.go", faults, "TestHookThatEndsReads",
		"\t\tdefer func() { done <- r }() // runs even if a hook ends this goroutine\n\t\tr.v, r.err = f(nested.Calm{Context: ctx})", "\t\tr.v, r.err = f(nested.Calm{Context: ctx})\n\t\tdone <- r"),
	cut("a continuation that a hook ended is followed by another", "internal/lease/group.go", "./internal/lease", "TestHookThatEndsAContinuation",
		"if m.goingOn = false; err != nil {", "if err == nil {\n\t\t\t\tm.goingOn = false\n\t\t\t} else {"),
	cut("a hook ends no goroutine that reads for waiters", "singleflight/lookup.go", simulation, "TestHookThatEndsALookUp",
		"GetApart(key)", "Get(g.manager.Client().Brief(), key)"),
	cut("a handle that is closed has nothing to wait for", "internal/lease/manager.go", ".", "CloseAfterClose",
		"\tif isClosed(m.ended) {\n\t\treturn nil\n\t}\n\tm.Stop()", "\tm.Stop()"),
	cut("a cache that is closed has nothing to wait for", "singleflight/group.go", ".", "CloseAfterClose",
		"g.over.Store(true)", ""),
	cut("a hook's panic does not end the inbox", "internal/inbox/inbox.go", "./internal/inbox", "",
		"defer func() { _ = recover() }()", ""),
	cutOnServers("hooks: an enter is given back if its caller was ended", "internal/lease/acquire.go", faults, "TestHookThatEndsItsCaller",
		"if !returned {", "if !returned && false {"),
	cutOnServers("hooks: a leave is repeated if its caller was ended", "internal/lease/release.go", faults, "TestHookThatEndsItsCaller",
		"defer func() { l.a.onLeft(c, ints, err) }()\n\t\t\tints, err = do(context.Background(), c)\n", "ints, err = do(context.Background(), c)\n\t\t\tl.a.onLeft(c, ints, err)\n"),
	cut("wrapped errors are classified", "internal/call/errors.go", callTests, "TestOutcomesOfHooks",
		"if !errors.As(err, &answered) {\n\t\treturn \"\"", "if answered, _ = err.(redis.Error); answered == nil {\n\t\treturn \"\""),
	cut("the errors of hooks may panic", "internal/call/pipeline.go", callTests, "TestOutcomesOfHooks",
		"\t\terr = tame(err, cmds...)\n", ""),
	cut("the errors of hooks may panic, also where the hook panicked", "internal/call/pipeline.go", callTests, "TestPanicOfAHook",
		"\t\t\terr = panicked(p)\n\t\t}\n\t\terr = tame", "\t\t\terr = panicked(p)\n\t\t\treturn\n\t\t}\n\t\terr = tame"),
	cut("the errors of hooks may panic, in reads", "internal/call/get.go", callTests, "TestReadOfAnErrorThatPanics",
		"processed := tame(c.rdb.Process(ctx, cmd), cmd)", "processed := c.rdb.Process(ctx, cmd)"),
	cut("the errors of hooks may panic, of several servers", "internal/quorum/operate.go", "./internal/tests/quorum", "TestDoOnceWhoseLooks",
		"	err = call.Harmless(err)\n	s.client.Heard", "	s.client.Heard"),
	cutOnServers("refused leaves are repeated", "internal/life/leaving.go", faults, "TestRefusedLeaves",
		"case NotSent, Unanswered, Refused, Foreign:", "case NotSent, Unanswered, Foreign:"),
	cut("Close waits for the question for the time", "internal/lease/config.go", leaseTests, "TestClose",
		"		single.CountQuestions(m.Go)\n", ""),
	cut("a seat of a batch counts once", "internal/call/batch.go", "./internal/call", "TestSeatThatIsLeft",
		"	if s.closed {\n		return false", "	if false {\n		return false"),
	cutOnServers("a clock for each node", "internal/call/servers.go", faults, "TestClocksOfTwoNodes",
		"{ return c.server(c.Node(key)) }", "{ return c.server(unknownNode) }"),
	cut("the wrapped client is found", "internal/call/client.go", callTests, "Wrapped",
		"layer, more = inner(layer)", "more = false"),
	cut("a grant that came too late is asked for anew", "internal/lease/acquire.go", permitTests, "TestGrantThatComesTooLate",
		"	c.at = c.m.newAttempt(c.at.res, c.of)\n", ""),
	cut("MaxWait ends the wait", "internal/lease/acquire.go", permitTests, "MaxWait",
		"c.maxWait = limit.C", "_ = limit.C"),
	cut("one question for the time", "internal/call/wait.go", callTests, "",
		"a, first := s.asked, s.asked == nil", "a, first := s.asked, true"),
	cutOnServers("a leave that stopped at a bound is sent again", "internal/lease/attempt.go", faults, "TestUnlockGoesOn",
		"if r.More {", "if false {"),
	cutOnServers("so is an ask", "internal/lease/group.go", faults, "TestDeadWaiters",
		"if r.More {", "if false {"),
	cut("so is a setting", "internal/setting/setting.go", permitTests, "TestRaisedLimitReachesAllWaiters",
		"if r.More {", "if false {"),
	cut("so is a publication", "internal/loads/publish.go", cache, "TestResultReachesAllProcesses",
		"err == nil && r.Left > 0 {", "false {"),
	cut("an ask after a lost leave", "internal/life/leaving.go", leaseTests, "TestGrantInALostReply",
		"fx = Ask // a lost reply may have carried grants to others", "fx = 0"),
	cut("a new clock after a void reply", "internal/call/servers.go", leases, "",
		"by.Got.Sub(s.Got) >= maxSampleAge || by.Micros > latest || latest >= by.Latest(by.Got)", "s.Got.IsZero() || latest == 0"),
	cut("a lock's waiter believes only grants", "internal/permits/permits.go", leaseTests, "FuzzForgedMessages",
		"\tif len(words) != len(v) {", "\tif len(words) < len(v) {"),
	cut("a message claims no more than the TTL", "internal/lease/messages.go", leaseTests, "FuzzForgedMessages",
		"\t\tr.Term = min(r.Term, m.cfg.TTL)\n", ""),
	cut("a sign of life keeps its key from living for ever", "luascripts/permits/ask.lua", scriptTests, "",
		"  if signs_before == 0 then keep(alive, now + ALIVE) end -- the key did not exist\n", ""),
	cut("one ask for all waiters", "internal/lease/group.go", leaseTests, "TestOneAsk",
		"n := min(len(rest), protocol.MaxAsk)", "n := min(len(rest), 1)"),
}
