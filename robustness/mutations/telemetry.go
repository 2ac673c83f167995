package main

const events = "./internal/tests/situations"

// telemetry are the guards of what an Observer and a Logger are told.
var telemetry = []mutation{
	cut("an Observer that hung and exited is waited for again", "internal/report/courier.go", "./internal/report", "TestCodeThatHungAndExited",
		"c.running, c.hangs = true, false", "c.running = true"),
	cut("telemetry: the Observer's panic ends nothing", "internal/report/courier.go", lockTests, "TestObserverThatPanics",
		"			c.guard(func() { c.hand(thing) })\n", "			c.hand(thing)\n"),
	cut("telemetry: an Observer that hangs is waited for once", "internal/report/courier.go", lockTests, "TestObserver",
		"	if done == nil || hangs {", "	if done == nil || hangs && false {"),
	cut("telemetry: undelivered events are bounded", "internal/report/courier.go", lockTests, "TestObserverThatIsTooSlow",
		"	if len(c.next.things) >= mostUndelivered {", "	if false {"),
	cut("events: a lease given back by a waiter that ended came too late", "internal/life/leaving.go", events, "",
		"if a.late && !a.taken {", "if false {"),
	cut("events: a load that nobody wants is not lost", "internal/report/report.go", events, "",
		"	case !errors.Is(why, leasehold.ErrLost):", "	case errors.Is(why, leasehold.ErrReleased):"),
	cut("events: a lost lease ends its hold", "internal/lease/attempt.go", events, "",
		"a.tellEnded(a.why, true)", "a.tellEnded(a.why, false)"),
	cut("events: a release that finds its lease gone is stale", "internal/lease/release.go", events, "",
		"if errors.Is(why, leasehold.ErrLost) && ", "if errors.Is(why, leasehold.ErrLost) && false && "),
	cut("events: the margin is that before the renewal", "internal/lease/events.go", events, "",
		"e.Duration = max(0, time.Until(deadline))", "e.Duration = r.Term"),
	cut("events: Redis is out of reach once", "internal/report/report.go", events, "",
		"if _, known := r.away[name]; !known {", "if true {"),
	cut("events: the loader gets the Observer's ctx", "singleflight/observe.go", events, "",
		"\t\treplaced = nested.", "\t\t_ = nested."),
	cut("events: no method of that ctx ends the process", "singleflight/observe.go", "./internal/tests/contract/singleflight", "TestObserverThatLeavesABrokenCtx",
		"nested.Calm{Context: l.Context}\n", "nested.Calm{Context: l.Context}.Context\n"),
	cut("events: logs name the hash of the key", "internal/lease/events.go", events, "",
		"hex.EncodeToString(sum[:8])", "a.res.Label()+hex.EncodeToString(sum[:0])"),
}
