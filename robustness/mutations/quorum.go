package main

const quorumTests = "./internal/tests/quorum"

// votes are the guards of locks that several servers decide.
var votes = []mutation{
	{
		name: "quorum: a vote is yielded to an earlier ticket", file: "internal/quorum/count.go",
		old: "s.stand == held && s.earlier && v.waits {", new: "false && s.earlier && v.waits {",
		packages: quorumTests, tests: "TestSplitVotes", servers: true,
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
		packages: quorumTests, tests: "TestNothingIsKept", servers: true,
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
		packages: quorumTests, tests: "TestAVoteThatEnded",
	},
	{
		name: "quorum: a leave without an answer is repeated", file: "internal/quorum/leave.go",
		old: "if !once.wanted() {", new: "if false {",
		packages: quorumTests, tests: "TestALeaveIsRepeated", servers: true,
	},
	{
		name: "quorum: Extend is at most the TTL", file: "internal/lease/lease.go",
		old: "if m.cfg.Quorum != nil && ttl > m.cfg.TTL {", new: "if false {",
		packages: quorumTests, tests: "TestExtend",
	},
	{
		name: "quorum: one server does not vote twice", file: "internal/quorum/calls.go",
		old: "err = server.twice()", new: "_ = server.twice()",
		packages: quorumTests, tests: "TestTheSameServer", servers: true,
	},
	{
		name: "quorum: a ticket is a time of the servers", file: "internal/quorum/protocol.go",
		old: "v.ticket = us + v.base - v.f.micros(time.Now())", new: "v.ticket = v.base",
		packages: quorumTests, tests: "TestWaitersIn",
	},
	{
		name: "quorum: a voter that comes again has its ticket", file: "internal/quorum/protocol.go",
		old: "if v.base == 0 {", new: "if v.phase == resting {",
		packages: quorumTests, tests: "TestAWaiterKeeps", servers: true,
	},
	{
		name: "quorum: a vote counts from the sending", file: "internal/quorum/calls.go",
		old: "until := sent.Add(call.Duration(ms))", new: "until := time.Now().Add(call.Duration(ms))",
		packages: "./internal/quorum", tests: "TestVoteCounts",
	},
	{
		name: "quorum: a vote with a lower fence does not count", file: "internal/quorum/count.go",
		old: "if s := &v.seats[i]; s.stand == held && s.fence >= v.token {", new: "if s := &v.seats[i]; s.stand == held {",
		packages: "./internal/quorum", tests: "TestDeadline",
	},
	{
		name: "quorum: the floor is read after the abstention", file: "internal/quorum/memory.go",
		old: "if l.ok && !l.votes && (e.begins || l.left == 0 && before[i] == l.birth) {", new: "if l.ok && !l.votes && (e.begins || l.left == 0) {",
		packages: "./internal/quorum", tests: "TestFloor",
	},
	{
		name: "quorum: a renewal asks for votes that are missing", file: "internal/quorum/protocol.go",
		old: "\t\t\tcase k == renewing:\n\t\t\t\tv.heal(i, max(term, lease.MinTTL), &t)\n", new: "",
		packages: quorumTests, tests: "TestEachRenewal",
	},
	{
		name: "quorum: the holder is before earlier tickets", file: "luascripts/quorum/enter.lua",
		old: "ticket_of(member) - FIRST", new: "ticket_of(member)",
		packages: quorumTests, tests: "TestAVoteThatAWaiter", servers: true,
	},
	{
		name: "quorum: nothing is sent to a server that is away", file: "internal/quorum/voter.go",
		old: "if err := server.away(key); err != nil {", new: "if err := server.away(key); false {",
		packages: "./internal/quorum", tests: "TestServerThatIsAway",
	},
	{
		name: "quorum: a fence is raised again after a pause", file: "internal/quorum/voter.go",
		old: "\tif s.err != nil {\n\t\tv.wakeAt", new: "\tif false {\n\t\tv.wakeAt",
		packages: "./internal/quorum", tests: "TestFenceOf",
	},
	{
		name: "quorum: a leave that waits has its own list of calls", file: "internal/quorum/voter.go",
		old: "slices.Clone(s.flights), s.copies //", new: "s.flights[:len(s.flights):len(slices.Clone(s.flights))], s.copies //",
		packages: "./internal/quorum", tests: "TestLeaveThatWaits",
	},
	{
		name: "quorum: leaves wait for a server that is away", file: "internal/quorum/voter.go",
		old: "if server.client.Away(l.key) {", new: "if false {",
		packages: "./internal/quorum", tests: "TestServerThatIsAway",
	},
	{
		name: "quorum: multi refuses it", file: "mutex/mutex.go",
		old: "if m.quorum != nil { // no pipeline", new: "if false { // no pipeline",
		packages: quorumTests, tests: "TestMulti",
	},
}
