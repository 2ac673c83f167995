package main

const events = "./internal/tests/situations"

// telemetry are the guards of what an Observer and a Logger are told.
var telemetry = []mutation{
	{
		name: "telemetry: the Observer's panic ends nothing", file: "internal/report/courier.go",
		old: "			c.guard(func() { c.hand(thing) })\n", new: "			c.hand(thing)\n",
		packages: "./internal/tests/contract/mutex", tests: "TestObserverThatPanics",
	},
	{
		name: "telemetry: an Observer that hangs is waited for once", file: "internal/report/courier.go",
		old: "	if done == nil || hangs {", new: "	if done == nil {",
		packages: "./internal/tests/contract/mutex", tests: "TestObserver",
	},
	{
		name: "telemetry: undelivered events are bounded", file: "internal/report/courier.go",
		old: "	if len(c.next.things) >= mostUndelivered {", new: "	if false {",
		packages: "./internal/tests/contract/mutex", tests: "TestObserverThatIsTooSlow",
	},
	{
		name: "events: a lease given back by a waiter that ended came too late", file: "internal/lease/life_held.go",
		old: "if a.late && !a.taken {", new: "if false {",
		packages: events,
	},
	{
		name: "events: a load that nobody wants is not lost", file: "internal/report/report.go",
		old: "	case !errors.Is(why, leasehold.ErrLost):", new: "	case errors.Is(why, leasehold.ErrReleased):",
		packages: events,
	},
	{
		name: "events: a lost lease ends its hold", file: "internal/lease/attempt.go",
		old: "a.tellEnded(a.why, true)", new: "a.tellEnded(a.why, false)",
		packages: events,
	},
	{
		name: "events: a release that finds its lease gone is stale", file: "internal/lease/release.go",
		old: "if errors.Is(why, leasehold.ErrLost) {", new: "if errors.Is(why, leasehold.ErrLost) && false {",
		packages: events,
	},
	{
		name: "events: the margin is that before the renewal", file: "internal/lease/events.go",
		old: "e.Duration = max(0, time.Until(deadline))", new: "e.Duration = r.Term",
		packages: events,
	},
	{
		name: "events: Redis is out of reach once", file: "internal/report/report.go",
		old: "if _, known := r.away[name]; !known {", new: "if true {",
		packages: events,
	},
	{
		name: "events: the loader gets the Observer's ctx", file: "singleflight/observe.go",
		old: "		base = l.Context // otherwise", new: "		_ = l.Context // otherwise",
		packages: events,
	},
	{
		name: "events: logs name the hash of the key", file: "internal/lease/events.go",
		old: "hex.EncodeToString(sum[:8])", new: "a.res.Label()+hex.EncodeToString(sum[:0])",
		packages: events,
	},
}
