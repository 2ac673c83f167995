package main

// Where the guards of revoking are noticed: by the references of the scripts, or by the
// simulation, whose operators revoke.
const (
	permitModel = scriptTests
	totalModel  = scriptTests
	operators   = "./internal/tests/simulation"
)

// revoked are the guards of revoking.
var revoked = []mutation{
	cut("revoke: a waiter that was revoked leaves a tombstone", "luascripts/permits/revoke.lua", permitModel, "Model",
		"bury(member, now + TOMBSTONE)", "bury(member, now)"),
	cut("revoke: a call without an answer is no success", "internal/revoke/revoke.go", "./internal/tests/contract/semaphore", "TestRevokeWithout",
		"			case err != nil:\n				return err", "			case err != nil:\n				return nil"),
	cut("revoke: a repeated leave that finds nothing tells why", "internal/life/leaving.go", "./internal/life ./internal/tests/contract/mutex", "TestExplorer|TestUnlockWhoseFirstReply",
		"\tcase r.Code == Revoked:\n\t\ta.Told = TellRevoked", "\tcase r.Code == Revoked && !a.resent:\n\t\ta.Told = TellRevoked"),
	cut("revoke: a waiter without an answer is not taken for one that was not revoked", "internal/life/waiting.go", "./internal/tests/contract/mutex", "TestRevokedWaiterWhose",
		"\tcase Refused, Unanswered:\n\t\treturn a.drop(TellNoAnswer)", "\tcase Refused, Unanswered:\n\t\treturn a.drop(TellAgain)"),
	cut("revoke: the caller of a load that never ran asks anew", "singleflight/wait.go", "./internal/tests/contract/singleflight", "TestRevokeOfALoadWhose",
		"loadsElsewhere || errors.Is(err, leasehold.ErrRevoked)", "loadsElsewhere"),
	cut("revoke: a second run finds the first", "luascripts/permits/revoke.lua", permitModel, "Model",
		"local state = before and 2 or 0", "local state = 0"),
	cut("revoke: all permits are taken", "luascripts/permits/revoke.lua", permitModel, "Model",
		"unpack(members_of(member, n))", "member"),
	cut("revoke: what is free is handed on", "luascripts/permits/revoke.lua", permitModel, "Model",
		"  advance()\n", ""),
	cut("revoke: the first reason stays", "luascripts/permits/revoke.lua", permitModel, "RevokedTwice",
		"if not before then mark", "if true then mark"),
	cut("revoke: a mark is the attempt's own", "luascripts/shared/why_gone.lua", permitModel+" "+operators, "Model|Simulation",
		"redis.call('HGET', marks, string.sub(revoked_handle or '', 1, 8) .. '-' .. (revoked_seq or ''))", "redis.call('HVALS', marks)[1]"),
	cut("revoke, total: a waiter that was revoked leaves a tombstone", "luascripts/totals/revoke.lua", totalModel, "Model",
		"bury(member, now + TOMBSTONE)", "bury(member, now)"),
	cut("revoke, total: a second run finds the first", "luascripts/totals/revoke.lua", totalModel, "Model",
		"local state = before and 2 or 0", "local state = 0"),
	cut("revoke, total: all permits are taken", "luascripts/totals/revoke.lua", totalModel, "Model",
		"redis.call('ZREM', holders, unpack(all))", "redis.call('ZREM', holders, member)"),
	cut("revoke, total: what is free is handed on", "luascripts/totals/revoke.lua", totalModel, "Model",
		"  advance()\n", ""),
	cut("revoke, load: a second run finds the first", "luascripts/loads/revoke.lua", permitModel, "Model",
		"local state, left = before and 2 or 0, 0", "local state, left = 0, 0"),
	cut("revoke, load: a copy of its enter is refused", "luascripts/loads/revoke.lua", permitModel, "Model",
		"bury(member, now + TOMBSTONE)", "bury(member, now)"),
	cut("revoke, load: an invalidated one goes, too", "luascripts/loads/revoke.lua", permitModel, "Model",
		"  if entry then redis.call('ZREM', invalidated, entry) end\n", ""),
	cut("revoke, load: those that wait are told", "luascripts/loads/revoke.lua", permitModel, "Model",
		"if is_held then\n  left = tell(last, true, 'F')", "if is_held then\n  left = 0"),
	cut("revoke, load: an invalidated one is held yet, and given back", "luascripts/loads/leave.lua", permitModel, "Model",
		"elseif entry then\n", "elseif false then\n"),
	cut("revoke: a hint only makes the holder renew", "internal/life/waiting.go", "./internal/life "+operators, "TestHint|Simulation",
		"\t\t\ta.renewAt, a.probes = at, true\n", "\t\t\treturn a.lose(ByServer, now)\n"),
	cut("hints put no renewal off", "internal/life/held.go", "./internal/life", "TestHintsPut|TestQuestion",
		"\tif probed {\n", "\tif false {\n"),
	cut("revoke: forged messages end no lease", "internal/lease/group.go", "./internal/tests/simulation", "Simulation",
		"\t\ta.after(a.life.OnHint(m.now()), nil)\n", "\t\tif a.life.State == life.Holding {\n\t\t\ta.after(a.life.GiveBack(life.ByHolder, m.now()), nil)\n\t\t}\n"),
	cut("revoke: a hint before the lease begins is kept", "internal/life/waiting.go", "./internal/life", "TestHintBrings",
		"\t\ta.asks = true\n", "\t\t_ = a.asks\n"),
	cut("revoke: a newcomer does not put a hint off", "internal/life/asking.go", "./internal/lease ./internal/tests/contract/semaphore", "AtATime|BesideANewcomer",
		"if g.hinted != 0 && g.hinted < at {", "if false {"),
	cut("revoke: old leases listen for hints", "internal/lease/watch.go", operators, "Simulation",
		"case now-a.grantAt >= watchAfter:", "case now-a.grantAt >= 100*watchAfter:"),
	cut("revoke: a leave that finds nothing tells why", "internal/life/leaving.go", "./internal/tests/contract/semaphore "+operators, "Revoke|Simulation",
		"\tcase r.Code == Revoked:\n\t\ta.Told = TellRevoked", "\tcase false:\n\t\ta.Told = TellRevoked"),
	cut("revoke: a renewal that finds nothing tells why", "internal/life/held.go", "./internal/tests/contract/semaphore", "ByItsRenewal",
		"return a.lostUntaken(TellRevoked, ByRevoker, now)", "return a.lostUntaken(TellRevoked, ByServer, now)"),
	cutOnServers("revoke: a new subscription renews", "internal/lease/watch.go", "./internal/tests/faults/mutex", "RenewedTogether",
		`renew = w.missed[""] || w.missed[key]`, "renew = false"),
}
