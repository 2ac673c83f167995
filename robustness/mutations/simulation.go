package main

// walked are guards that the simulation of slots, of several at once and of kept leases has to
// miss. Other tests miss most of them sooner; these show that the simulation looks.
var walked = []mutation{
	{
		name: "simulation: an enter looks for the completion first", file: "luascripts/permits/enter_once.lua",
		old: "if redis.call('EXISTS', KEYS[5]) == 1 then", new: "if false then",
		packages: simulation, tests: "TestSimulationOfSlots",
	},
	{
		name: "simulation: a grant of another call is looked at again", file: "mutex/once.go",
		old: "if !l.ByEnter() || m.quorum != nil {", new: "if false {",
		packages: simulation, tests: "TestSimulationOfSlots", seeds: 60,
	},
	{
		name: "simulation: a completion that is sent again finds itself", file: "luascripts/permits/complete.lua",
		old: "redis.call('GET', done) == ARGV[1]", new: "false",
		packages: simulation, tests: "TestSimulationOfSlots", seeds: 60,
	},
	{
		name: "simulation: only a lease that lasts completes", file: "luascripts/permits/complete.lua",
		old: "if expiry > now and not repeated then", new: "if not repeated then",
		packages: simulation, tests: "TestSimulationOfSlots", seeds: 60,
	},
	{
		name: "simulation: a failed run leaves the slot open", file: "mutex/once.go",
		old: "succeeded = err == nil", new: "succeeded = true",
		packages: simulation, tests: "TestSimulationOfSlots",
	},
	{
		name: "simulation: Close leaves the slot open", file: "internal/lease/release.go",
		old: "\tif mark != nil {\n\t\treturn a.fail(op)\n\t}", new: "\tif mark != nil {\n\t\treturn nil\n\t}",
		packages: simulation, tests: "TestSimulationOfSlots", seeds: 60,
	},
	{
		name: "simulation: a completion that was forgotten before its answer is not told as lost", file: "mutex/once.go",
		old: "time.Since(began) >= r.keep", new: "false",
		packages: simulation, tests: "TestCompletionIsForgotten",
	},
	{
		name: "simulation: items are taken in order", file: "multi/item.go",
		old: "return cmp.Compare(a.name, b.name)", new: "return 0 * cmp.Compare(a.name, b.name)",
		packages: simulation, tests: "TestSimulationOfSeveral",
	},
	{
		name: "simulation: nothing is held behind an item that is queued for", file: "multi/acquire.go",
		old: "\t\tgiveBack(answers())\n\t\tanswers = func() []answer { return nil }\n", new: "",
		packages: simulation, tests: "TestSimulationOfSeveral", seeds: 60,
	},
	{
		name: "simulation: a loss of one ends the Context of all", file: "multi/acquire.go",
		old: "\t\ta.of.lease.CancelAtEnd(t.cancel)\n", new: "",
		packages: simulation, tests: "TestSimulationOfSeveral", seeds: 60,
	},
	{
		name: "simulation: a process that keeps leases hears recalls", file: "internal/lease/group.go",
		old: "\t\t\tm.keeper.Recalled(key)\n", new: "\t\t\t_ = key\n",
		packages: simulation, tests: "TestSimulationOfKeptLeases", seeds: 60,
	},
}
