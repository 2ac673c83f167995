package main

const quorumTests = "./internal/tests/quorum"

// votes are the guards of locks that several servers decide.
var votes = []mutation{
	{
		name: "quorum: a vote is yielded to an earlier ticket", file: "internal/quorum/count.go",
		old: "s.stand == held && s.earlier && v.waits {", new: "false && s.earlier && v.waits {",
		packages: quorumTests, tests: "TestOneHolder|TestWaitersIn",
	},
	{
		name: "quorum: no reply to a call before a yield counts", file: "internal/quorum/voter.go",
		old: "s.stand, s.floor, s.earlier = yielding, s.sent, false", new: "s.stand, s.earlier = yielding, false",
		packages: "./internal/quorum", tests: "TestYield",
	},
	{
		name: "quorum: a yield without an answer may still come", file: "internal/quorum/calls.go",
		old: "s.notBefore = max(s.notBefore, fl.void)", new: "_ = fl.void",
		packages: "./internal/quorum", tests: "TestYield",
	},
	{
		name: "quorum: without a majority all is given back", file: "internal/quorum/voter.go",
		old: "\tif v.phase != wanting {\n\t\treturn\n\t}\n\tv.phase = resting\n", new: "\treturn\n\tv.phase = resting\n",
		packages: quorumTests, tests: "TestNoMajority|TestTryLock",
	},
	{
		name: "quorum: the deadline is that of a majority", file: "internal/quorum/count.go",
		old: "return untils[len(untils)-v.f.need]", new: "return untils[len(untils)-1]",
		packages: "./internal/quorum", tests: "TestDeadline",
	},
	{
		name: "quorum: a majority has one token", file: "internal/quorum/count.go",
		old: "\tif equal < v.f.need {\n", new: "\tif false {\n",
		packages: "./internal/quorum", tests: "TestOneToken",
	},
	{
		name: "quorum: another process is one that has forgotten", file: "luascripts/quorum/shared/process.lua",
		old: "if not process or process ~= memory[1] then", new: "if not process or not memory[1] then",
		packages: quorumTests, tests: "TestAServerWithAnOldSnapshot", servers: true,
	},
	{
		name: "quorum: a server that has forgotten abstains for a TTL", file: "luascripts/quorum/shared/process.lua",
		old: "math.max(0, math.floor(birth / 1000) + 1 + ttl - now)", new: "0",
		packages: quorumTests, tests: "TestAnEmptyServer|TestAMajorityForgets", servers: true,
	},
	{
		name: "quorum: new tokens are above the floor", file: "luascripts/quorum/shared/queue.lua",
		old: "math.floor(math.max(last or us, floor)) + 1", new: "math.floor(last or us) + 1",
		packages: quorumTests, tests: "TestAFloorKeeps", servers: true,
	},
	{
		name: "quorum: the floor is asked for", file: "internal/quorum/memory.go",
		old: "if e.floor = top; !any {", new: "if !any {",
		packages: quorumTests, tests: "TestAFloorKeeps", servers: true,
	},
	{
		name: "quorum: a family begins with all servers", file: "internal/quorum/memory.go",
		old: "case answered == all && fresh == all:", new: "case fresh >= f.need:",
		packages: quorumTests, tests: "TestAFamilyBegins", servers: true,
	},
	{
		name: "quorum: if a majority has forgotten, all must answer", file: "internal/quorum/memory.go",
		old: "case answered == all && remember+over == all:", new: "case remember+over >= f.need:",
		packages: quorumTests, tests: "TestAMajorityForgets|TestAllMust", servers: true,
	},
	{
		name: "quorum: a renewal heals a vote that is missing", file: "internal/quorum/calls.go",
		old: "if v.phase == holding && fl.kind == renews {", new: "if false {",
		packages: quorumTests, tests: "TestAVoteThatIsMissing",
	},
	{
		name: "quorum: a leave without an answer is repeated", file: "internal/quorum/leave.go",
		old: "if !once.wanted() {", new: "if false {",
		packages: quorumTests, tests: "TestAMinorityIsAway|TestLostReplies", servers: true,
	},
	{
		name: "quorum: Extend is at most the TTL", file: "internal/lease/lease.go",
		old: "if m.cfg.Quorum != nil && ttl > m.cfg.TTL {", new: "if false {",
		packages: quorumTests, tests: "TestExtend",
	},
	{
		name: "quorum: one server does not vote twice", file: "internal/quorum/voter.go",
		old: "\t\t\terr = server.twice()\n\t\t}\n\t\tif err != nil {\n\t\t\tv.onReply(fl, nil", new: "\t\t}\n\t\tif err != nil {\n\t\t\tv.onReply(fl, nil",
		packages: quorumTests, tests: "TestTheSameServer", servers: true,
	},
}
