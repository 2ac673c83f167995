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
		name: "revoke: a call without an answer is no success", file: "internal/lease/revoke.go",
		old: "			case err != nil:\n				return err", new: "			case err != nil:\n				return nil",
		packages: "./internal/tests/contract/semaphore", tests: "TestRevokeWithout",
	},
	{
		name: "revoke: a repeated leave that finds nothing asks why", file: "internal/lease/release.go",
		old: "	if r.Held {\n", new: "	if r.Held || resent {\n",
		packages: "./internal/tests/contract/mutex", tests: "TestUnlockWhoseFirstReply",
	},
	{
		name: "revoke: a waiter without an answer is not taken for one that was not revoked", file: "internal/lease/acquire.go",
		old: "		w.abandon()\n		return w.fail(leasehold.ErrUnavailable, err)\n	}\n	return nil\n", new: "	}\n	return nil\n",
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
		name: "revoke: a fate is the attempt's own", file: "luascripts/permits/fate.lua",
		old: "redis.call('HGET', revoked, ARGV[2])", new: "redis.call('HVALS', revoked)[1]",
		packages: operators, tests: "Simulation",
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
		name: "revoke, load: an invalidated one is held yet", file: "luascripts/loads/fate.lua",
		old: " or invalidated_load(ARGV[1])", new: "",
		packages: operators, tests: "Simulation",
	},
	{
		name: "revoke: a message only makes the holder ask", file: "internal/lease/fate.go",
		old: "\t\tl.askFate()\n\tcase g != nil:", new: "\t\tl.mu.Lock()\n\t\tl.lose(&leasehold.RevokedError{Reason: \"so it says\"}, nil)\n\t\tl.mu.Unlock()\n\tcase g != nil:",
		packages: operators, tests: "Simulation",
	},
	{
		name: "revoke: a lease that is held goes on", file: "internal/lease/fate.go",
		old: "\t\tl.fateFailures = 0\n\t\tif alive {", new: "\t\tl.fateFailures = 0\n\t\tif alive && false {",
		packages: operators, tests: "Simulation",
	},
	{
		name: "revoke: forged messages end none of many leases", file: "internal/lease/fate.go",
		old: "return v[0] != 0, nil, nil", new: "return v[0] == 2, nil, nil",
		packages: "./internal/tests/faults/mutex", tests: "InNumbers", servers: true,
	},
	{
		name: "revoke: a hint before the lease begins is kept", file: "internal/lease/fate.go",
		old: "\t\tm.hints[m.nextHint%maxHints] = seq\n", new: "",
		packages: "./internal/tests/faults/mutex", tests: "HintBefore", servers: true,
	},
	{
		name: "revoke: a newcomer does not put a hint off", file: "internal/lease/group.go",
		old: "if !g.hinted.IsZero() && g.hinted.Before(at) {", new: "if false {",
		packages: "./internal/tests/contract/semaphore", tests: "BesideANewcomer",
	},
	{
		name: "revoke: old leases listen for hints", file: "internal/lease/fate.go",
		old: "case now.Sub(l.since) >= watchAfter:", new: "case now.Sub(l.since) >= 100*watchAfter:",
		packages: operators, tests: "Simulation",
	},
	{
		name: "revoke: a leave that finds nothing asks why", file: "internal/lease/release.go",
		old: "	end, err := l.m.revocation(context.Background(), l.req, fatePatience)", new: "	end, err := error(nil), error(nil)",
		packages: "./internal/tests/contract/semaphore " + operators, tests: "Revoke|Simulation",
	},
	{
		name: "revoke: a renewal that finds nothing asks why", file: "internal/lease/fate.go",
		old: "	end, _ := l.m.revocation(context.Background(), l.req, min(fatePatience, time.Until(l.Deadline())))", new: "	end := error(nil)",
		packages: "./internal/tests/contract/semaphore", tests: "ByItsRenewal",
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
