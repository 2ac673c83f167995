package main

const (
	keepTests     = "./internal/tests/contract/semaphore"
	keepLockTests = "./internal/tests/contract/mutex"
)

// kept are the guards of leases that nobody uses and that stay in a process.
var kept = []mutation{
	{
		name: "a process that keeps leases hears recalls", file: "internal/lease/group.go",
		old: "\t\t\tm.keeper.Recalled(key)\n", new: "\t\t\t_ = key\n",
		packages: keepTests, tests: "TestRecallTakesNoTime",
	},
	{
		name: "a lease that was granted under the mark is not kept", file: "luascripts/permits/shared/enter.lua",
		old: "recalled and 1 or 0, added", new: "0, added",
		packages: keepTests + " " + scriptTests, tests: "TestContendedPermit|TestModelOfPermits",
	},
	{
		name: "a copy of an enter registers no keeper", file: "luascripts/permits/shared/enter.lua",
		old: " and not (keepers and redis.call('ZSCORE', holders, member))", new: "",
		packages: scriptTests, tests: "TestCopyOfAnEnterRegisters|TestModelOfPermits",
	},
	{
		name: "a lease that was waited for is not kept", file: "internal/lease/kept.go",
		old: "\tif l.a.kept == nil {\n\t\treturn Grant{}\n\t}\n\treturn l.a.kept.grant\n", new: "\treturn Grant{Sent: l.Since(), Keepable: true}\n",
		packages: keepTests, tests: "TestContendedPermit",
	},
	{
		name: "a process that keeps leases asks each second", file: "internal/localturns/keep.go",
		old: "!k.unheard && now.Sub(k.heard) < askAfter", new: "!k.unheard",
		packages: keepTests, tests: "TestLostRecall",
	},
	{
		name: "nothing is kept after 2 s of silence", file: "internal/localturns/keep.go",
		old: "silentAfter = 2 * time.Second", new: "silentAfter = 20 * time.Second",
		packages: keepTests, tests: "TestNothingIsKeptWhile",
	},
	{
		name: "an idle lease serves nobody after its deadline", file: "internal/lease/life_held.go",
		old: "if a.state != held || now >= a.deadline {\n\t\treturn false", new: "if a.state != held {\n\t\treturn false",
		packages: "./internal/lease", tests: "TestLifeOfAnIdleLease",
	},
	{
		name: "an idle lease that serves a turn is not idle", file: "internal/lease/life_held.go",
		old: "\ta.idle = false\n", new: "",
		packages: "./internal/lease", tests: "TestExplorer",
	},
	{
		name: "an idle lease that is lost is given back", file: "internal/lease/life_held.go",
		old: "\tif a.idle {\n\t\ta.state, a.released", new: "\tif false {\n\t\ta.state, a.released",
		packages: "./internal/lease", tests: "TestExplorer|TestLifeOfAnIdleLease",
	},
	{
		name: "what is given back soon is not asked about", file: "internal/localturns/keep.go",
		old: "if last.Sub(now) < soonOver {", new: "if false {",
		packages: keepTests, tests: "TestKeptPermitThatNobodyUses",
	},
	{
		name: "a lease does not rest while turns wait", file: "internal/localturns/keep.go",
		old: "!v.grant.Keepable || ln.length > 0 {", new: "!v.grant.Keepable {",
		packages: keepLockTests, tests: "TestTokensOfTurnsOnKeptLocks",
	},
	{
		name: "a try that awaits kept permits is none of those who wait", file: "internal/lease/acquire.go",
		old: "\t\tothers.Waiting = max(0, others.Waiting-1)\n", new: "",
		packages: keepTests, tests: "TestTryAcquireAwaitsKept",
	},
	{
		name: "an idle lease serves nobody after KeepFor", file: "internal/localturns/keep.go",
		old: "if now.Sub(since) >= ln.h.cfg.KeepFor || ", new: "if _ = since; ",
		packages: "./internal/localturns", tests: "TestNoTurnBeginsAfterKeepFor",
	},
	{
		name: "what was used least recently goes", file: "internal/localturns/shelf.go",
		old: "trim = s.length > maxIdle && !s.trimming", new: "trim = false",
		packages: keepTests, tests: "TestKeptPermitsAreBounded",
	},
	{
		name: "leases of other weights go back before a try", file: "internal/localturns/own.go",
		old: "\t\t\tothers = ln.others()\n", new: "",
		packages: keepTests, tests: "TestOwnPermitsOfAnotherWeight",
	},
	{
		name: "the last token of a kept lock is stored", file: "internal/localturns/turn.go",
		old: "\tv.lease.SetLastToken(v.lastToken)\n", new: "",
		packages: keepLockTests, tests: "TestFenceOfAKeptLock",
	},
	{
		name: "a second try waits for the same recall", file: "luascripts/permits/shared/recall.lua",
		old: "return coming_until and coming_until > now", new: "return false",
		packages: keepTests + " " + scriptTests, tests: "TestSecondTryWaits|TestModelOfPermits",
	},
	{
		name: "further requests that find no room prolong the mark", file: "luascripts/permits/shared/recall.lua",
		old: "    redis.call('ZADD', alive, now + RECALLED, '^')\n", new: "",
		packages: keepTests + " " + scriptTests, tests: "TestTryAcquireAwaits|TestModelOfPermits",
	},
	{
		name: "a recall takes the keepers out of the register", file: "luascripts/permits/shared/recall.lua",
		old: "  redis.call('DEL', keepers)\n", new: "",
		packages: scriptTests, tests: "TestModelOfPermits",
	},
	{
		name: "nothing is kept once Shutdown has begun", file: "internal/localturns/keep.go",
		old: "\th.stopped.Store(true)\n", new: "",
		packages: keepTests, tests: "TestShutdownWaitsForUsers",
	},
	{
		name: "an acquisition from memory looks for Close", file: "internal/localturns/own.go",
		old: "\tcase <-h.m.Closing(): // Close may", new: "\tcase <-(chan struct{})(nil): // Close may",
		packages: "./internal/localturns", tests: "TestAcquisitionFromMemoryLooks",
	},
	{
		name: "a lease in use when the recall comes is not kept", file: "internal/localturns/keep.go",
		old: "v.grant.Sent.After(k.recalledAt) && !v.over", new: "!v.over",
		packages: "./internal/localturns " + keepTests, tests: "TestLeasesOfEarlierEnters|TestRecalledPermitInUse",
	},
	{
		name: "an extended lease is not kept", file: "internal/localturns/keep.go",
		old: "!v.over && !v.oneTurn &&", new: "!v.over &&",
		packages: keepTests, tests: "TestExtendedPermit",
	},
	{
		name: "one lost lease makes the process give back the others", file: "internal/localturns/turn.go",
		old: "\t\tln.unheard() // what", new: "\t\t_ = 0 // what",
		packages: keepTests, tests: "TestKeptPermitsThatRedisForgets",
	},
	{
		name: "nobody is told of the loss of a lease that nobody used", file: "internal/lease/attempt.go",
		old: "if !a.idle { // else nobody", new: "if true { // else nobody",
		packages: keepTests, tests: "TestKeptPermitIsRevoked",
	},
	{
		name: "a process pauses when keeping has not paid", file: "internal/localturns/keep.go",
		old: "\t\t\tk.pausedUntil = now.Add(k.pause)\n", new: "",
		packages: keepTests, tests: "TestKeepingPauses",
	},
	{
		name: "a limit that was lowered recalls", file: "luascripts/permits/set_limit.lua",
		old: "if limit == '0' or in_use() > tonumber(limit) then", new: "if false then",
		packages: keepTests + " " + scriptTests, tests: "TestLoweredLimitRecalls|TestModelOfPermits",
	},
}
