package main

// commands are the guards of the command line.
var commands = []mutation{
	{
		name: "run: SIGTERM comes before the lease ends", file: "cmd/leasehold/internal/run/guard.go",
		old: "case g.Lost == LostTerm && now >= g.deadline-g.Grace:", new: "case false:",
		packages: "./cmd/leasehold", tests: "TestCutNetwork",
	},
	{
		name: "run: SIGKILL comes when it ends", file: "cmd/leasehold/internal/run/guard.go",
		old: "case g.toolGone, now >= g.deadline:", new: "case g.toolGone:",
		packages: "./cmd/leasehold", tests: "TestStoppedTools",
	},
	{
		name: "run: the program ends with its tool", file: "cmd/leasehold/internal/run/guard.go",
		old: "case g.toolGone, now >= g.deadline:", new: "case now >= g.deadline:",
		packages: "./cmd/leasehold", tests: "TestKilledTool",
	},
	{
		name: "run: a program that was told to stop gets no more time", file: "cmd/leasehold/internal/run/guard.go",
		old: "g.deadline = min(g.deadline, time.Duration(n))", new: "_ = n",
		packages: "./cmd/leasehold", tests: "TestRevokedProgram",
	},
	{
		name: "run: a lost lease ends the program", file: "cmd/leasehold/internal/run/attend.go",
		old: "a.guard.tell(\"lost %d\", int64(clock()+grace))", new: "_ = grace",
		packages: "./cmd/leasehold", tests: "TestRevokedProgram",
	},
	{
		name: "run: --lost kill asks for nothing", file: "cmd/leasehold/internal/run/guard.go",
		old: "if g.terminal != 0 || g.Lost != LostTerm || g.program == 0 || g.ended {", new: "if g.terminal != 0 || g.program == 0 || g.ended {",
		packages: "./cmd/leasehold", tests: "TestRevokedProgram",
	},
	{
		name: "run: all that descends from the program is ended", file: "cmd/leasehold/internal/run/processes_linux.go",
		old: "if !p.over() && slices.Contains(sessions, p.session) {", new: "if p.pid == sessions[len(sessions)-1] {",
		packages: "./cmd/leasehold", tests: "TestKilledTool",
	},
	{
		name: "run: the program ends with its guard", file: "cmd/leasehold/internal/run/attend.go",
		old: "killOrphans(a.before, a.pid)", new: "_ = a",
		packages: "./cmd/leasehold", tests: "TestProgramEndsWithTheGuard",
	},
	{
		name: "run: a lease that was handed over is made as long as it is to be", file: "cmd/leasehold/internal/run/wait.go",
		old: "if time.Until(l.Deadline()) > o.TTL*2/3 {", new: "if true {",
		packages: "./cmd/leasehold", tests: "TestProgramThatWaited",
	},
	{
		name: "run: what the program leaves behind is ended", file: "cmd/leasehold/internal/run/guard.go",
		old: "case g.ended || g.killing:", new: "case g.ended:\n\t\tg.reported = true\n\t\tg.say(\"exit %d\", uint32(g.status))\n\t\treturn tick\n\tcase g.killing:",
		packages: "./cmd/leasehold", tests: "LeavesBehind",
	},
	{
		name: "run: the guard adopts orphans", file: "cmd/leasehold/internal/run/guard.go",
		old: "if err := adopt(); err != nil {", new: "if err := error(nil); err != nil {",
		packages: "./cmd/leasehold", tests: "LeavesBehind",
	},
	{
		name: "run: an ignored signal stays ignored", file: "cmd/leasehold/internal/run/signals.go",
		old: "if !ignored[sig] {", new: "if len(ignored) >= 0 {",
		packages: "./cmd/leasehold", tests: "TestIgnoredSignals",
	},
	{
		name: "run: a signal to the group is not passed on", file: "cmd/leasehold/internal/run/signals.go",
		old: "		if near {\n", new: "		if near && gone {\n",
		packages: "./cmd/leasehold", tests: "TestSignalOfTheTerminal",
	},
	{
		name: "run: the tool finds out that no shell is left", file: "cmd/leasehold/internal/run/processes_linux.go",
		old: "	return true\n}\n\nfunc isGuard", new: "	return false\n}\n\nfunc isGuard",
		packages: "./cmd/leasehold", tests: "TestOrphanThatWants",
	},
	{
		name: "run: --wait bounds a silent Redis", file: "cmd/leasehold/internal/run/wait.go",
		old: "			hangs = time.After(giveUp)\n			cancel(errWaitOver)", new: "			cancel(errWaitOver)",
		packages: "./cmd/leasehold", tests: "TestWaitBounds",
	},
	{
		name: "run: SIGPIPE does not end the guard or the tool", file: "cmd/leasehold/internal/run/guard.go",
		old: "[]syscall.Signal{unix.SIGPIPE, unix.SIGTTIN,", new: "[]syscall.Signal{unix.SIGTTIN,",
		packages: "./cmd/leasehold", tests: "TestSweepThatOutlasts",
	},
	{
		name: "run: the next program waits for a revoked one", file: "cmd/leasehold/internal/run/revoked.go",
		old: "permits += int(number(entry.Values[\"permits\"]))", new: "",
		packages: "./cmd/leasehold", tests: "NextProgram",
	},
	{
		name: "run: a tool notes that a revoked program has ended", file: "cmd/leasehold/internal/run/revoked.go",
		old: "		p.noteEnded(l.ID())\n", new: "",
		packages: "./cmd/leasehold", tests: "NextProgram",
	},
	{
		name: "run: the grace is bounded by the lease", file: "cmd/leasehold/internal/cli/run.go",
		old: "if o.Grace < 0 || o.Grace > o.TTL/3 {", new: "if o.Grace < 0 {",
		packages: "./cmd/leasehold", tests: "TestExitCodes",
	},
	{
		name: "an answer that can't be written is an error", file: "cmd/leasehold/internal/cli/root.go",
		old: "if out.err != nil {", new: "if false {",
		packages: "./cmd/leasehold", tests: "TestAnswerThat",
	},
	{
		name: "JSON is harmless on a terminal", file: "cmd/leasehold/internal/text/json.go",
		old: "case r < utf8.RuneSelf && r != 0x7f || harmless(r):", new: "case r >= 0:",
		packages: "./cmd/leasehold/internal/cli", tests: "TestNamesInJSON",
	},
	{
		name: "a URL with an unescaped password is refused", file: "cmd/leasehold/internal/connect/connect.go",
		old: "strings.Contains(rest[i:], \"@\") {", new: "strings.Contains(rest[i:], \"@@\") {",
		packages: "./cmd/leasehold/internal/connect", tests: "TestPasswordIsNever",
	},
	{
		name: "doctor: a right that was not found out is unknown", file: "cmd/leasehold/internal/doctor/rights.go",
		old: "unknown = append(unknown, strings", new: "_ = append(unknown, strings",
		packages: "./cmd/leasehold/internal/doctor", tests: "TestRightThat",
	},
	{
		name: "the page: slow clients make room", file: "cmd/leasehold/internal/cli/connections.go",
		old: "case own >= b.perClient:", new: "case own < 0:",
		packages: "./cmd/leasehold", tests: "TestSlowClients",
	},
	{
		name: "the page: requests of a client are bounded", file: "cmd/leasehold/internal/cli/connections.go",
		old: "if !b.of(clientOf(r.RemoteAddr) + kind).Allow() {", new: "if _ = kind; false {",
		packages: "./cmd/leasehold", tests: "TestRequestsOfAClient",
	},
	{
		name: "ls: a holder that hangs is not usual", file: "internal/listing/since.go",
		old: "if u.HeldFor > 0 && !u.Overlong &&", new: "if u.HeldFor > 0 &&",
		packages: "./cmd/leasehold/internal/cli", tests: "TestLeaseThatIsHeldForLong",
	},
	{
		name: "ls: a lease that is kept does not hang", file: "internal/listing/since.go",
		old: "h.TTL > 0 && !h.Keeps &&", new: "h.TTL > 0 &&",
		packages: "./cmd/leasehold/internal/cli", tests: "TestLeaseThatMayBeIdle",
	},
	{
		name: "revoke: an ID is no flag", file: "cmd/leasehold/internal/cli/revoke.go",
		old: "if i < 0 || err != nil ||", new: "if i < 0 || err == nil ||",
		packages: "./cmd/leasehold/internal/cli", tests: "TestRevokeTakesIDs",
	},
}
