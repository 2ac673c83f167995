package main

// revoked are the guards of revoking.
var revoked = []mutation{
	{
		name: "revoke: a waiter that was revoked leaves a tombstone", file: "luascripts/permits/revoke.lua",
		old: "bury(member, now + TOMBSTONE)", new: "bury(member, now)",
		packages: "./internal/tests/scripts", tests: "RevokedAttempt",
	},
	{
		name: "revoke: a message only makes the holder ask", file: "internal/lease/fate.go",
		old: "\t\tl.fateFailures = 0\n\t\tif alive {", new: "\t\tl.fateFailures = 0\n\t\tif alive && false {",
		packages: "./internal/tests/faults/mutex", tests: "ForgedHints", servers: true,
	},
	{
		name: "revoke: a hint before the lease begins is kept", file: "internal/lease/fate.go",
		old: "\t\tm.hints[m.nextHint%maxHints] = seq\n", new: "",
		packages: "./internal/tests/faults/mutex", tests: "HintBefore", servers: true,
	},
	{
		name: "revoke: a second run finds the first", file: "luascripts/permits/revoke.lua",
		old: "local state = before and 2 or 0", new: "local state = 0",
		packages: "./internal/tests/contract/mutex", tests: "Revoke",
	},
	{
		name: "revoke: all permits are taken", file: "luascripts/permits/revoke.lua",
		old: "unpack(members_of(member, n))", new: "member",
		packages: "./internal/tests/contract/semaphore", tests: "Revoke",
	},
	{
		name: "revoke: a new subscription asks for fates", file: "internal/lease/fate.go",
		old: "if missed[\"\"] || missed[key] {", new: "if missed == nil && key == \"\" {",
		packages: "./internal/tests/faults/mutex", tests: "FatesAreAsked", servers: true,
	},
	{
		name: "revoke: many fates are asked for in a round trip", file: "internal/lease/fate.go",
		old: "time.Duration(i/fatesAtOnce*fatesAtOnce)", new: "time.Duration(i)",
		packages: "./internal/tests/faults/mutex", tests: "FatesAreAsked", servers: true,
	},
}
