package main

// Where the guards of revoking are noticed: by the references of the scripts, or by the
// simulation, whose operators revoke.
const (
	permitModel = "./internal/tests/scripts"
	totalModel  = "./internal/totals"
	operators   = "./internal/tests/simulation"
)

// revoked are the guards of revoking.
var revoked = []mutation{
	{
		name: "revoke: a waiter that was revoked leaves a tombstone", file: "luascripts/permits/revoke.lua",
		old: "bury(member, now + TOMBSTONE)", new: "bury(member, now)",
		packages: permitModel, tests: "RevokedAttempt|Model",
	},
	{
		name: "revoke: a call without an answer is no success", file: "internal/revoke/revoke.go",
		old: "			case err != nil:\n				return err", new: "			case err != nil:\n				return nil",
		packages: "./internal/tests/contract/semaphore", tests: "TestRevokeWithout",
	},
	{
		name: "revoke: a repeated leave that finds nothing tells why", file: "internal/lease/life_held.go",
		old: "\tcase r.Code == Revoked:\n\t\ta.told = tellRevoked", new: "\tcase r.Code == Revoked && !a.resent:\n\t\ta.told = tellRevoked",
		packages: "./internal/lease ./internal/tests/contract/mutex", tests: "TestExplorer|TestUnlockWhoseFirstReply",
	},
	{
		name: "revoke: a waiter without an answer is not taken for one that was not revoked", file: "internal/lease/life.go",
		old: "\tcase Refused, Unanswered:\n\t\treturn a.drop(tellNoAnswer)", new: "\tcase Refused, Unanswered:\n\t\treturn a.drop(tellAgain)",
		packages: "./internal/tests/contract/mutex", tests: "TestRevokedWaiterWhose",
	},
	{
		name: "revoke: a second run finds the first", file: "luascripts/permits/revoke.lua",
		old: "local state = before and 2 or 0", new: "local state = 0",
		packages: permitModel, tests: "Model",
	},
	{
		name: "revoke: all permits are taken", file: "luascripts/permits/revoke.lua",
		old: "unpack(members_of(member, n))", new: "member",
		packages: permitModel, tests: "Model",
	},
	{
		name: "revoke: what is free is handed on", file: "luascripts/permits/revoke.lua",
		old: "  advance()\n", new: "",
		packages: permitModel, tests: "Model",
	},
	{
		name: "revoke: the first reason stays", file: "luascripts/permits/revoke.lua",
		old: "if not before then mark", new: "if true then mark",
		packages: permitModel, tests: "RevokedTwice",
	},
	{
		name: "revoke: a mark is the attempt's own", file: "luascripts/shared/why_gone.lua",
		old: "redis.call('HGET', marks, string.sub(revoked_handle or '', 1, 8) .. '-' .. (revoked_seq or ''))", new: "redis.call('HVALS', marks)[1]",
		packages: permitModel + " " + operators, tests: "Model|Simulation",
	},
	{
		name: "revoke, total: a waiter that was revoked leaves a tombstone", file: "luascripts/totals/revoke.lua",
		old: "bury(member, now + TOMBSTONE)", new: "bury(member, now)",
		packages: totalModel, tests: "Model",
	},
	{
		name: "revoke, total: a second run finds the first", file: "luascripts/totals/revoke.lua",
		old: "local state = before and 2 or 0", new: "local state = 0",
		packages: totalModel, tests: "Model",
	},
	{
		name: "revoke, total: all permits are taken", file: "luascripts/totals/revoke.lua",
		old: "redis.call('ZREM', holders, unpack(all))", new: "redis.call('ZREM', holders, member)",
		packages: totalModel, tests: "Model",
	},
	{
		name: "revoke, total: what is free is handed on", file: "luascripts/totals/revoke.lua",
		old: "  advance()\n", new: "",
		packages: totalModel, tests: "Model",
	},
	{
		name: "revoke, load: a second run finds the first", file: "luascripts/loads/revoke.lua",
		old: "local state, left = before and 2 or 0, 0", new: "local state, left = 0, 0",
		packages: permitModel, tests: "Model",
	},
	{
		name: "revoke, load: a copy of its enter is refused", file: "luascripts/loads/revoke.lua",
		old: "bury(member, now + TOMBSTONE)", new: "bury(member, now)",
		packages: permitModel, tests: "Model",
	},
	{
		name: "revoke, load: an invalidated one goes, too", file: "luascripts/loads/revoke.lua",
		old: "  if entry then redis.call('ZREM', invalidated, entry) end\n", new: "",
		packages: permitModel, tests: "Model",
	},
	{
		name: "revoke, load: those that wait are told", file: "luascripts/loads/revoke.lua",
		old: "if is_held then\n  left = tell(last, true, 'F')", new: "if is_held then\n  left = 0",
		packages: permitModel, tests: "Model",
	},
	{
		name: "revoke, load: an invalidated one is held yet, and given back", file: "luascripts/loads/leave.lua",
		old: "elseif entry then\n", new: "elseif false then\n",
		packages: permitModel, tests: "Model",
	},
	{
		name: "revoke: a hint only makes the holder renew", file: "internal/lease/life.go",
		old: "\t\t\ta.renewAt, a.probes = at, true\n", new: "\t\t\treturn a.lose(byServer, now)\n",
		packages: "./internal/lease " + operators, tests: "TestHint|Simulation",
	},
	{
		name: "hints put no renewal off", file: "internal/lease/life_held.go",
		old: "\tif probed {\n", new: "\tif false {\n",
		packages: "./internal/lease", tests: "TestHintsPut|TestQuestion",
	},
	{
		name: "revoke: forged messages end none of many leases", file: "internal/lease/group.go",
		old: "\t\ta.after(a.state, a.onHint(m.now()), nil)\n", new: "\t\tif was := a.state; was == held {\n\t\t\ta.after(was, a.lose(byServer, m.now()), nil)\n\t\t}\n",
		packages: "./internal/tests/faults/mutex", tests: "InNumbers", servers: true,
	},
	{
		name: "revoke: a hint before the lease begins is kept", file: "internal/lease/life.go",
		old: "\t\ta.asks = true\n", new: "\t\t_ = a.asks\n",
		packages: "./internal/lease ./internal/tests/faults/mutex", tests: "TestHintBrings|HintBefore", servers: true,
	},
	{
		name: "revoke: a newcomer does not put a hint off", file: "internal/lease/group.go",
		old: "if g.hinted != 0 && g.hinted < at {", new: "if false {",
		packages: "./internal/lease ./internal/tests/contract/semaphore", tests: "AtATime|BesideANewcomer",
	},
	{
		name: "revoke: old leases listen for hints", file: "internal/lease/watch.go",
		old: "case now-a.grantAt >= watchAfter:", new: "case now-a.grantAt >= 100*watchAfter:",
		packages: operators, tests: "Simulation",
	},
	{
		name: "revoke: a leave that finds nothing tells why", file: "internal/lease/life_held.go",
		old: "\tcase r.Code == Revoked:\n\t\ta.told = tellRevoked", new: "\tcase false:\n\t\ta.told = tellRevoked",
		packages: "./internal/tests/contract/semaphore " + operators, tests: "Revoke|Simulation",
	},
	{
		name: "revoke: a renewal that finds nothing tells why", file: "internal/lease/life_held.go",
		old: "return a.lostUntaken(tellRevoked, byRevoker, now)", new: "return a.lostUntaken(tellRevoked, byServer, now)",
		packages: "./internal/tests/contract/semaphore", tests: "ByItsRenewal",
	},
	{
		name: "revoke: a new subscription renews", file: "internal/lease/watch.go",
		old: `renew = w.missed[""] || w.missed[key]`, new: "renew = false",
		packages: "./internal/tests/faults/mutex", tests: "RenewedTogether", servers: true,
	},
}
