package main

// commands are the guards of the command line.
var commands = []mutation{
	{
		name: "run: SIGTERM comes before the lease ends", file: "cmd/leasehold/internal/run/guard.go",
		old: "if now >= g.deadline-g.grace && !g.kill {", new: "if false {",
		packages: "./cmd/leasehold", tests: "TestCutNetwork",
	},
	{
		name: "run: SIGKILL comes when it ends", file: "cmd/leasehold/internal/run/guard.go",
		old: "if now >= g.deadline {", new: "if false {",
		packages: "./cmd/leasehold", tests: "TestStoppedTools",
	},
	{
		name: "run: the program ends with its tool", file: "cmd/leasehold/internal/run/guard.go",
		old: "g.end() // the tool is gone", new: "_ = g",
		packages: "./cmd/leasehold", tests: "TestKilledTool",
	},
	{
		name: "run: a program that was told to stop gets no more time", file: "cmd/leasehold/internal/run/guard.go",
		old: "g.deadline = min(g.deadline, time.Duration(n))", new: "_ = n",
		packages: "./cmd/leasehold", tests: "TestRevokedProgram",
	},
	{
		name: "run: a lost lease ends the program", file: "cmd/leasehold/internal/run/run.go",
		old: "guard.tell(\"lost\", int64(clock()+grace))", new: "_ = grace",
		packages: "./cmd/leasehold", tests: "TestRevokedProgram",
	},
	{
		name: "run: --lost kill asks for nothing", file: "cmd/leasehold/internal/run/guard.go",
		old: "if g.terminal != 0 || g.kill || g.group == 0 {", new: "if g.terminal != 0 || g.group == 0 {",
		packages: "./cmd/leasehold", tests: "TestRevokedProgram",
	},
	{
		name: "run: signals reach the group", file: "cmd/leasehold/internal/run/guard.go",
		old: "_ = unix.Kill(-g.group, unix.SIGKILL)", new: "_ = unix.Kill(g.group, unix.SIGKILL)",
		packages: "./cmd/leasehold", tests: "TestKilledTool",
	},
	{
		name: "run: the program ends with its guard", file: "cmd/leasehold/internal/run/run.go",
		old: "_ = unix.Kill(-p.pid, unix.SIGKILL)", new: "_ = p",
		packages: "./cmd/leasehold", tests: "TestProgramEndsWithTheGuard",
	},
	{
		name: "run: a lease that was handed over is made as long as it is to be", file: "cmd/leasehold/internal/run/lease.go",
		old: "if time.Until(l.Deadline()) > o.TTL*2/3 {", new: "if true {",
		packages: "./cmd/leasehold", tests: "TestProgramThatWaited",
	},
	{
		name: "run: what the program leaves behind is ended", file: "cmd/leasehold/internal/run/run.go",
		old: "sweep(p.pid, o.Grace)", new: "",
		packages: "./cmd/leasehold", tests: "LeavesBehind",
	},
	{
		name: "run: the first process of a container reaps orphans", file: "cmd/leasehold/internal/run/program.go",
		old: "pid, err := unix.Wait4(-pgid, nil, unix.WNOHANG, nil)", new: "pid, err := 0, error(nil)",
		packages: "./cmd/leasehold", tests: "TestFirstProcess",
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
		name: "revoke: an ID is no flag", file: "cmd/leasehold/internal/cli/revoke.go",
		old: "if i < 0 || err != nil ||", new: "if i < 0 || err == nil ||",
		packages: "./cmd/leasehold/internal/cli", tests: "TestRevokeRefuses",
	},
}
