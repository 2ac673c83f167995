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

const (
	scriptTests = "./internal/tests/scripts"
	callTests   = "./internal/call"
	leases      = "./internal/tests/scripts ./internal/lease ./internal/tests/simulation"
	cache       = "./internal/tests/contract/singleflight ./internal/tests/simulation"
	loads       = "./internal/tests/scripts ./internal/tests/contract/singleflight ./internal/tests/simulation"

	localTests       = "./internal/tests/contract/mutex"
	localPermitTests = "./internal/tests/contract/semaphore"
	turnTests        = "Local|Turn|Place|ALease|GivingBack|ExtendedLease|LostLease|Locks|AToken|ALimit|MaxWaitersOf|MaxWaitersIs|MaxWaitOf"

	contractAndFaults = "./internal/tests/contract/semaphore ./internal/tests/faults/semaphore"
	lockFaults        = "./internal/tests/faults/mutex"
	loadFaults        = "./internal/tests/faults/singleflight"
)

// sampled are the guards that -sample draws from: those of the permits' scripts, of
// families with a total and of listings. The others are tried by name, or all
// together.
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
	{
		name: "void time of an enter", file: "luascripts/permits/shared/enter.lua",
		old: "if void_from > 0 and us >= void_from then", new: "if false then",
		packages: scriptTests,
	},
	{
		name: "tombstone refuses a stray enter", file: "luascripts/permits/shared/enter.lua",
		old: "if sign and not queued then\n", new: "if false then\n",
		packages: scriptTests,
	},
	{
		name: "a leave leaves a tombstone", file: "luascripts/permits/shared/give_back.lua",
		old: "if copies_until > now then bury", new: "if false then bury",
		packages: scriptTests,
	},
	{
		name: "a retried enter finds its own lease", file: "luascripts/permits/shared/enter.lua",
		old: "if expiry > now then\n", new: "if false then\n",
		packages: scriptTests,
	},
	{
		name: "a retried enter gets the same token", file: "luascripts/permits/shared/enter.lua",
		old:      "  local token = current_token()\n  return token and {",
		new:      "  local token = fenced and issue_token() or 0\n  return token and {",
		packages: scriptTests,
	},
	{
		name: "the limit, on the fast path", file: "luascripts/permits/shared/enter.lua",
		old: "if held < tonumber(ARGV[4]) and", new: "if",
		packages: leases,
	},
	{
		name: "the limit, behind it", file: "luascripts/permits/shared/enter.lua",
		old: "in_use() + permits <= limit and not has_live_waiter()", new: "not has_live_waiter()",
		packages: leases,
	},
	{
		name: "newcomers don't pass the queue", file: "luascripts/permits/shared/enter.lua",
		old: "in_use() + permits <= limit and not has_live_waiter()", new: "in_use() + permits <= limit",
		packages: scriptTests,
	},
	{
		name: "the limit, when handing over", file: "luascripts/permits/shared/queue.lua",
		old: "if waiting_handle and n <= limit and in_use() + n > limit then return end", new: "",
		packages: leases,
	},
	{
		name: "a head that can't be served is removed", file: "luascripts/permits/shared/queue.lua",
		old: "if n > limit then", new: "if false then",
		packages: scriptTests,
	},
	{
		name: "the stored limit goes first", file: "luascripts/permits/shared/queue.lua",
		old: "return tonumber(stored) or own_limit", new: "return own_limit",
		packages: scriptTests,
	},
	{
		name: "the fence keeps tokens rising", file: "luascripts/permits/shared/issue_token.lua",
		old: "if last >= us then", new: "if false then",
		packages: scriptTests,
	},
	{
		name: "a spent fence issues no token", file: "luascripts/permits/shared/issue_token.lua",
		old: "if token > 9007199254740991 then", new: "if false then",
		packages: lockFaults, tests: "TestFence",
	},
	{
		name: "a spent fence is put back", file: "luascripts/permits/shared/issue_token.lua",
		old: "token or before, 'PX'", new: "token or us, 'PX'",
		packages: lockFaults, tests: "TestFence",
	},
	{
		name: "tokens are whole numbers", file: "luascripts/permits/shared/issue_token.lua",
		old: "math.floor(last) + 1", new: "last + 1",
		packages: lockFaults, tests: "TestFence",
	},
	{
		name: "a leave gives back beside a spent fence", file: "luascripts/permits/shared/give_back.lua",
		old: "if not token then return { 1, us } end", new: "if not token then return no_token end",
		packages: lockFaults, tests: "TestFence",
	},
	{
		name: "waiters are told of a spent fence", file: "luascripts/permits/ask.lua",
		old: "if spent then return spent end -- the head", new: "spent = nil -- the head",
		packages: lockFaults, tests: "TestFence",
	},
	{
		name: "a lock is handed over if nobody holds it", file: "luascripts/permits/shared/give_back.lua",
		old: "held_without_copies and fenced and redis.call('EXISTS', holders) == 0", new: "held_without_copies and fenced",
		packages: scriptTests,
	},
	{
		name: "and to a living waiter", file: "luascripts/permits/shared/give_back.lua",
		old: "if next_handle and alive_for > OVERDUE then", new: "if next_handle then",
		packages: scriptTests,
	},
	{
		name: "on probation", file: "luascripts/permits/shared/give_back.lua",
		old: "if next_handle ~= handle then term = math.min(term, PROBATION, alive_for - SILENCE) end", new: "",
		packages: scriptTests,
	},
	{
		name: "a stray's tombstone is left beside a hand-over", file: "luascripts/permits/shared/give_back.lua",
		old: "local held_without_copies = given_back > 0 and ARGV[3] == '0'", new: "local held_without_copies = given_back > 0",
		packages: scriptTests,
	},
	{
		name: "a grant's key expires with its last permit", file: "luascripts/permits/shared/queue.lua",
		old: "    keep(holders, now + term)\n", new: "    redis.call('PEXPIREAT', holders, now + term)\n",
		packages: scriptTests,
	},
	{
		name: "probation of a granted waiter", file: "luascripts/permits/shared/queue.lua",
		old: "waiting_handle == handle and ttl or math.min(ttl, PROBATION, alive_for - SILENCE)", new: "ttl",
		packages: scriptTests,
	},
	{
		name: "overdue waiters are passed over", file: "luascripts/permits/shared/queue.lua",
		old: "    if alive_for <= OVERDUE then\n      if looked_at", new: "    if alive_for <= 0 then\n      if looked_at",
		packages: scriptTests,
	},
	{
		name: "overdue waiters are parked", file: "luascripts/permits/shared/queue.lua",
		old: "if #parked > 0 then", new: "if false then",
		packages: scriptTests,
	},
	{
		name: "a call that stops at a bound says so", file: "luascripts/permits/shared/queue.lua",
		old: "  if more then\n", new: "  if false then\n",
		packages: scriptTests,
	},
	{
		name: "a parked waiter comes back with its sign of life", file: "luascripts/permits/ask.lua",
		old: "if ticket >= 0 then", new: "if false then",
		packages: scriptTests,
	},
	{
		name: "a newcomer stands behind parked waiters", file: "luascripts/permits/shared/enter.lua",
		old: "last_ticket = math.max(last_ticket - PARKED, tonumber(unparked or 0))", new: "last_ticket = tonumber(unparked or 0)",
		packages: scriptTests,
	},
	{
		name: "a first term ends soon after the last sign", file: "luascripts/permits/shared/give_back.lua",
		old: "PROBATION, alive_for - SILENCE", new: "PROBATION",
		packages: scriptTests,
	},
	{
		name: "dead waiters are dropped", file: "luascripts/shared/purge_waiters.lua",
		old: "    redis.call('ZREM', queue, unpack(gone))", new: "",
		packages: scriptTests,
	},
	{
		name: "dead holders are passed", file: "luascripts/permits/shared/queue.lua",
		old: "counted = counted or redis.call('ZCOUNT', holders, '(' .. now, '+inf')", new: "counted = counted or redis.call('ZCARD', holders)",
		packages: "./internal/tests/contract/semaphore", tests: "TestTwoTTLs",
	},
	{
		name: "a renewal never revives", file: "luascripts/permits/shared/push_expiry.lua",
		old: "if expiry <= now then return 0 end", new: "",
		packages: scriptTests,
	},
	{
		name: "a renewal never shortens", file: "luascripts/permits/shared/push_expiry.lua",
		old: "if till <= expiry then return expiry - now end", new: "",
		packages: scriptTests,
	},
	{
		name: "expiries of keys only grow", file: "luascripts/permits/shared/enter.lua",
		old: "redis.call('PEXPIREAT', holders, now + ttl, 'GT')", new: "redis.call('PEXPIREAT', holders, now + ttl)",
		packages: scriptTests,
	},
	{
		name: "tickets rise", file: "luascripts/permits/shared/enter.lua",
		old: "ticket = math.max(us, last_ticket + 1)", new: "ticket = us",
		packages: scriptTests,
	},
	{
		name: "a waiter's old ticket counts", file: "luascripts/permits/shared/enter.lua",
		old: "ticket = tonumber(ticket)", new: "ticket = 0",
		packages: leases,
	},
	{
		name: "a guard compares tokens", file: "luascripts/guard/set.lua",
		old: "then return { 0 } end", new: "then end",
		packages: "./internal/tests/contract/mutex", tests: "TestGuard",
	},
}

// client are the guards of the Go code of calls and leases.
var client = []mutation{
	{
		name: "scripts are sent once", file: "internal/call/command.go",
		old: "t.failures.Add(1); return true }", new: "t.failures.Add(1); return false }",
		packages: callTests, tests: "SentOnce",
	},
	{
		name: "a server that forgets is taught again", file: "internal/call/pipeline.go",
		old: "unknown = send(unknown)", new: "unknown = nil",
		packages: callTests,
	},
	{
		name: "only a reply is an answer", file: "internal/call/call.go",
		old: "\tcase o.err == nil && none && !asked:\n\t\to.err = notSent(trip)\n\tcase o.err == nil && none:\n\t\to.err = noReply(trip)\n", new: "\tcase false:\n\t\t_ = none\n",
		packages: callTests,
	},
	{
		name: "Close during Due is not forgotten", file: "internal/schedule/loop.go",
		old: "if e.at = next; !next.After(now) || l.closedDuringDue {", new: "if e.at = next; !next.After(now) {",
		packages: "./internal/schedule",
	},
	{
		name: "the margin before the deadline", file: "internal/lease/protocol.go",
		old: "return max(12*time.Millisecond, term/40)", new: "return 0",
		packages: leases,
	},
	{
		name: "a deadline counts from the sending", file: "internal/lease/life_held.go",
		old: "a.deadline = sent + r.Term", new: "a.deadline = now + r.Term",
		packages: "./internal/lease", tests: "TestExplorer|TestDeadlineCounts",
	},
	{
		name: "a message's time is mapped", file: "internal/lease/group.go",
		old: "\t\tfrom = min(from, m.moment(g.clock.Earliest(r.GrantedAt)))\n", new: "",
		packages: "./internal/lease", tests: "TestDeadlineOfAMessage",
	},
	{
		name: "a grant that comes too late is given back", file: "internal/lease/life.go",
		old: "if !a.taken { // between its grant and this look", new: "if false { // between its grant and this look",
		packages: "./internal/lease", tests: "TestDeadlineIsNoticed",
	},
	{
		name: "a lease that Close gives back is not returned", file: "internal/lease/acquire.go",
		old: "\t\tinto.a.step(nil, func(now moment) effect { return into.a.giveBack(byClose, now) })\n\t\treturn c.fail(leasehold.ErrClosed)", new: "\t\treturn nil",
		packages: "./internal/tests/contract/semaphore", tests: "TestAcquireDoesNotReturnALease",
	},
	{
		name: "a late grant of a try is no other holder", file: "internal/lease/life_held.go",
		old: "\t\ta.told = tellLate\n", new: "\t\ta.told = tellAgain\n",
		packages: "./internal/tests/contract/mutex", tests: "TestTryLockWhoseGrant",
	},
	{
		name: "the lease ends at its deadline", file: "internal/lease/life_held.go",
		old: "if a.state == held && now >= a.deadline {", new: "if false {",
		packages: "./internal/lease", tests: "TestDeadlineIsNoticed",
	},
	{
		name: "a lease that was lost before Close stays lost", file: "internal/lease/life_held.go",
		old: "case a.state == lost && why == byHolder:", new: "case a.state == lost:",
		packages: localTests, tests: "TestLossBeforeClose",
	},
	{
		name: "no deadline is after MaxHold", file: "internal/lease/lease.go",
		old: "if !end.IsZero() && end.Before(t) {", new: "if false {",
		packages: localTests, tests: "TestDeadlineIsNotAfter",
	},
	{
		name: "RetryAfter counts from when the error is made", file: "internal/lease/manager.go",
		old: "if !s.AsOf.IsZero() {", new: "if false {",
		packages: localTests, tests: "TestRetryAfterIsNotAfter",
	},
	{
		name: "a guard's value is that of its call", file: "mutex/guard.go",
		old: "return bytes.Clone(v), nil // the caller", new: "_ = bytes.Clone(v); return v, nil // the caller",
		packages: localTests, tests: "TestGuardWritesTheBytes",
	},
	{
		name: "nothing is given back at the deadline", file: "internal/lease/life_held.go",
		old: "\t\treturn a.lose(byDeadline, now)\n", new: "\t\tfx := a.lose(byDeadline, now)\n\t\tif a.taken {\n\t\t\ta.state, a.next, a.told = leaving, now, tellDone\n\t\t}\n\t\treturn fx\n",
		packages: "./internal/lease", tests: "TestNothingIsGivenBack",
	},
	{
		name: "a waiter that leaves while its enter is under way gives back", file: "internal/lease/life.go",
		old: "a.state, a.late = leaving, true", new: "a.state, a.late = over, true",
		packages: "./internal/lease", tests: "TestExplorer",
	},
	{
		name: "a leave is repeated for a TTL after a late enter", file: "internal/lease/life_held.go",
		old: "return max(a.until, a.runs+a.ttl)", new: "return max(a.until, a.runs)",
		packages: "./internal/lease", tests: "TestExplorer|TestLeaveIsRepeated",
	},
	{
		name: "a leave is repeated for the term of a late renewal", file: "internal/lease/life_held.go",
		old: "\tcase Granted:\n\t\ta.until = max(a.until, now+r.Term)\n", new: "",
		packages: "./internal/lease", tests: "TestLeaveIsRepeated",
	},
	{
		name: "a leave is repeated for the term of an Extend without an answer", file: "internal/lease/life_held.go",
		old: "\tcase Unanswered:\n\t\ta.until = max(a.until, now+term)\n", new: "",
		packages: "./internal/lease", tests: "TestLeaveIsRepeated",
	},
	{
		name: "a request without an answer is not busy", file: "internal/lease/acquire.go",
		old: "if cause != nil && (fails > 0 || time.Since(c.asked) > silence) {", new: "if false {",
		packages: "./internal/tests/contract/semaphore", tests: "TestSilentRedis",
	},
	{
		name: "a queued request of a silent server is not busy", file: "internal/lease/group.go",
		old: "return g.asked > g.sent && now-g.got", new: "return g.asked == 0 && now-g.got",
		packages: "./internal/tests/contract/semaphore", tests: "TestSilentRedis",
	},
	{
		name: "an answer to an earlier turn is none to a later one", file: "internal/localturns/localturns.go",
		old: "!ln.heard.Before(t.joined) && ", new: "",
		packages: "./internal/tests/contract/semaphore", tests: "TestSilentRedis",
	},
	{
		name: "calls refused while credentials are rotated are repeated", file: "internal/call/errors.go",
		old: `, "WRONGPASS", "NOAUTH", "NOPERM",`, new: ",",
		packages: "./internal/call", tests: "TestErrorsThatStay|TestWrongPassword|TestClasses",
	},
	{
		name: "a leave names until when an enter may arrive", file: "internal/lease/enter.go",
		old: "\t\tcase e != nil && at.flying:\n\t\t\tat.void = max(at.void, e.void)\n", new: "",
		packages: contractAndFaults, tests: "TestLate|TestAcquireCancelled|TestRollback", servers: true,
	},
	{
		name: `a grant after "enter again" counts`, file: "internal/lease/life.go",
		old: "if a.state != queued && (a.state != entering || asked) {", new: "if a.state != queued {",
		packages: "./internal/lease", tests: "TestGrantThatFollows",
	},
	{
		name: "a try without an answer is told of, though the next one was not sent", file: "internal/lease/acquire.go",
		old: "\t\tcause = failure\n", new: "\t\tcause = nil\n",
		packages: "./internal/tests/contract/mutex", tests: "TestCtxEndsBeforeTheNextTry",
	},
	{
		name: "what was never sent is not given back", file: "internal/lease/life.go",
		old: "case a.enters == 0, a.runs == 0", new: "case a.runs == 0",
		packages: "./internal/tests/faults/mutex", tests: "TestCtxEndsWhileACluster", servers: true,
	},
	{
		name: "a hook that ends its goroutine answers its caller", file: "internal/call/wait.go",
		old: "\t\tdefer func() { done <- r }() // runs even if a hook ends this goroutine\n\t\tr.v, r.err = f(ctx)", new: "\t\tr.v, r.err = f(ctx)\n\t\tdone <- r",
		packages: "./internal/tests/faults/mutex", tests: "TestGuardIsFenced", servers: true,
	},
	{
		name: "a hook's panic does not end the inbox", file: "internal/inbox/inbox.go",
		old: "defer func() { _ = recover() }()", new: "",
		packages: "./internal/inbox",
	},
	{
		name: "wrapped errors are classified", file: "internal/call/errors.go",
		old: "if !errors.As(err, &answered) {\n\t\treturn \"\"", new: "if answered, _ = err.(redis.Error); answered == nil {\n\t\treturn \"\"",
		packages: "./internal/tests/faults/mutex", tests: "TestHookThatWraps", servers: true,
	},
	{
		name: "refused leaves are repeated", file: "internal/lease/life_held.go",
		old: "case NotSent, Unanswered, Refused, Foreign:", new: "case NotSent, Unanswered, Foreign:",
		packages: "./internal/tests/faults/semaphore", tests: "TestRefusedLeaves", servers: true,
	},
	{
		name: "Close waits for the question for the time", file: "internal/lease/config.go",
		old: "		single.CountQuestions(m.Go)\n", new: "",
		packages: leases, tests: "TestClose",
	},
	{
		name: "a seat of a batch counts once", file: "internal/call/batch.go",
		old: "	if s.closed {\n		return false", new: "	if false {\n		return false",
		packages: "./internal/call", tests: "TestSeatThatIsLeft",
	},
	{
		name: "a clock for each node", file: "internal/call/servers.go",
		old: "k, ok := c.clocks.Load(node)", new: "node = \"\"\n\tk, ok := c.clocks.Load(node)",
		packages: "./internal/tests/faults/semaphore", tests: "TestClocksOfTwoNodes", servers: true,
	},
	{
		name: "the wrapped client is found", file: "internal/call/client.go",
		old: "layer, more = inner(layer)", new: "more = false",
		packages: "./internal/tests/faults/semaphore", tests: "TestLeasesOfHealthyNodes", servers: true,
	},
	{
		name: "MaxWait ends the wait", file: "internal/lease/acquire.go",
		old: "c.maxWait = limit.C", new: "_ = limit.C",
		packages: "./internal/tests/contract/semaphore", tests: "MaxWait",
	},
	{
		name: "one question for the time", file: "internal/call/wait.go",
		old: "a, first := s.asked, s.asked == nil", new: "a, first := s.asked, true",
		packages: callTests,
	},
	{
		name: "a leave that stopped at a bound is sent again", file: "internal/lease/attempt.go",
		old: "if r.More {", new: "if false {",
		packages: "./internal/tests/faults/mutex", tests: "TestUnlockGoesOn", servers: true,
	},
	{
		name: "so is an ask", file: "internal/lease/group.go",
		old: "if r.More {", new: "if false {",
		packages: "./internal/tests/faults/mutex", tests: "TestDeadWaiters", servers: true,
	},
	{
		name: "an ask after a lost leave", file: "internal/lease/life_held.go",
		old: "fx = ask // a lost reply may have carried grants to others", new: "fx = 0",
		packages: "./internal/lease", tests: "TestGrantInALostReply",
	},
	{
		name: "a new clock after a void reply", file: "internal/call/servers.go",
		old: "!k.known || s.Got.Sub(old.Got) >= maxSampleAge || s.Micros > old.Latest(s.Got) || old.Latest(s.Got) >= s.Latest(s.Got)", new: "!k.known || old == s",
		packages: leases,
	},
	{
		name: "a lock's waiter believes only grants", file: "internal/permits/permits.go",
		old: "\tif len(words) != len(v) {", new: "\tif len(words) < len(v) {",
		packages: leases,
	},
	{
		name: "a message claims no more than the TTL", file: "internal/lease/group.go",
		old: "\t\tr.Term = min(r.Term, a.ttl)\n", new: "",
		packages: "./internal/lease", tests: "TestForgedTerm",
	},
	{
		name: "a sign of life keeps its key from living for ever", file: "luascripts/permits/ask.lua",
		old: "  keep(alive, now + ALIVE) -- again, if the key did not exist before", new: "",
		packages: scriptTests,
	},
	{
		name: "one ask for all waiters", file: "internal/lease/group.go",
		old: "n := min(len(rest), MaxAsk)", new: "n := min(len(rest), 1)",
		packages: "./internal/lease", tests: "TestOneAsk",
	},
}
