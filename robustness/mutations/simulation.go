package main

// walked are guards that the simulation of slots, of several at once and of kept leases has to
// miss. Other tests miss most of them sooner; these show that the simulation looks.
var walked = []mutation{
	walk("simulation: an enter looks for the completion first", "luascripts/permits/enter_once.lua", "TestSimulationOfSlots", 0,
		"if redis.call('EXISTS', KEYS[5]) == 1 then", "if false then"),
	walk("simulation: a grant of another call is looked at again", "mutex/once.go", "TestSimulationOfSlots", 60,
		"if !l.ByEnter() || m.quorum != nil {", "if false {"),
	walk("simulation: a completion that is sent again finds itself", "luascripts/permits/complete.lua", "TestSimulationOfSlots", 60,
		"stored == ARGV[1]", "false"),
	walk("simulation: only a lease that lasts completes", "luascripts/permits/complete.lua", "TestSimulationOfSlots", 60,
		"if expiry > now and not stored then", "if not stored then"),
	walk("simulation: a failed run leaves the slot open", "mutex/once.go", "TestSimulationOfSlots", 0,
		"succeeded = err == nil", "succeeded = true"),
	walk("simulation: Close leaves the slot open", "internal/lease/release.go", "TestSimulationOfSlots", 60,
		"\tif completes {\n\t\treturn a.fail(op)\n\t}", "\tif completes {\n\t\treturn nil\n\t}"),
	walk("simulation: a completion that was forgotten before its answer is not told as lost", "mutex/once.go", "TestCompletionIsForgotten", 0,
		"time.Since(began) >= r.keep", "time.Since(began) < 0"),
	walk("simulation: items are taken in order", "multi/item.go", "TestSimulationOfSeveral", 0,
		"return cmp.Compare(a.name, b.name)", "return 0 * cmp.Compare(a.name, b.name)"),
	walk("simulation: nothing is held behind an item that is queued for", "multi/acquire.go", "TestSimulationOfSeveral", 60,
		"\t\tgiveBack(answers())\n\t\tanswers = func() []answer { return nil }\n", ""),
	walk("simulation: a loss of one ends the Context of all", "multi/acquire.go", "TestSimulationOfSeveral", 60,
		"\t\ta.of.lease.CancelAtEnd(t.ctx, t.cancel)\n", ""),
	walk("simulation: a lease of several lasts as long as the first of them", "multi/lease.go", "TestSimulationOfSeveral", 0,
		"at.Before(earliest)", "at.After(earliest)"),
	walk("simulation: a value is served for as long as it may be", "singleflight/lookup.go", "TestSimulation$", 0,
		"e.age-e.env.Fresh < d", "d >= 0"),
	walk("simulation: a try is refused only where somebody holds or waits", "internal/lease/acquire.go", "TestSimulation$", 20,
		"\tinto.check()\n", "\tif into.check(); !of.Wait && time.Now().UnixMicro()%10 == 0 {\n\t\treturn nil, leasehold.ErrBusy\n\t}\n"),
	walk("simulation: a process that keeps leases hears recalls", "internal/lease/messages.go", "TestSimulationOfKeptLeases", 60,
		"\t\t\tm.keeper.Recalled(key)\n", "\t\t\t_ = key\n"),
}

// walk is a mutation that so many seeds of a simulation miss.
func walk(name, file, tests string, seeds int, old, new string) mutation {
	m := cut(name, file, simulation, tests, old, new)
	m.seeds = seeds
	return m
}
