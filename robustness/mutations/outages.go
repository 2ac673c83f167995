package main

// outages are the guards of what happens while Redis is away.
var outages = []mutation{
	{
		name: "breaker: silence ends with the last call without an answer", file: "internal/call/breaker.go",
		old: "return b.opened != nil\n}", new: "return b.opened != nil || b.troubled.Load() && time.Since(b.silentSince) >= silenceBound\n}",
		packages: callTests, tests: "TestBreakerOpens",
	},
	{
		name: "breaker: silence begins after the last answered call", file: "internal/call/breaker.go",
		old: "if latest.After(b.silentSince) {", new: "if false {",
		packages: callTests, tests: "TestBreakerOpens",
	},
	{
		name: "breaker: one of several connections refused", file: "internal/call/breaker.go",
		old: "refused(err) && !answeredSince", new: "refused(err) && (answeredSince || true)",
		packages: callTests, tests: "TestBreakerOpens",
	},
	{
		name: "breaker: an older answer does not replace a newer one", file: "internal/call/breaker.go",
		old: "last < at && !b.answered.CompareAndSwap(last, at);", new: "last != at && !b.answered.CompareAndSwap(last, at);",
		packages: callTests, tests: "TestBreakerOpens",
	},
	{
		name: "breaker: an error is an answer", file: "internal/call/breaker.go",
		old: "case hasAnswer(err):", new: "case err == nil:",
		packages: callTests, tests: "TestBreakerOpens",
	},
	{
		name: "breaker: a closed client says nothing", file: "internal/call/breaker.go",
		old: "case ClientClosed(err), ", new: "case ",
		packages: callTests, tests: "TestBreakerOpens",
	},
	{
		name: "breaker: a withdrawn call says nothing", file: "internal/call/breaker.go",
		old: "errors.Is(err, errWithdrawn), errors.Is(err, redis", new: "errors.Is(err, redis",
		packages: callTests, tests: "TestBreakerOpens",
	},
	{
		name: "breaker: a call that was not sent says nothing", file: "internal/call/queue.go",
		old: "if !this.unsent && (", new: "if (",
		packages: callTests, tests: "TestBreakerIgnores",
	},
	{
		name: "breaker: the time that replicas take says nothing", file: "internal/call/queue.go",
		old: "(q.way.Confirm == (Confirm{}) || hasAnswer(err))", new: "true",
		packages: callTests, tests: "TestBreakerIgnores",
	},
	{
		name: "breaker: probes", file: "internal/call/breaker.go",
		old: "	if due {", new: "	if due && false {",
		packages: callTests, tests: "OpenBreaker",
	},
	{
		name: "breaker: probes are few", file: "internal/call/breaker.go",
		old: "now.Sub(b.probed) < probeEvery || ", new: "",
		packages: callTests, tests: "OpenBreaker",
	},
	{
		name: "breaker: more than 4 probes", file: "internal/call/breaker.go",
		old: "maxProbes = 16", new: "maxProbes = 4",
		packages: callTests, tests: "TestProbesWithoutAnOutcome",
	},
	{
		name: "breaker: probes are bounded", file: "internal/call/breaker.go",
		old: " || b.probes == maxProbes", new: "",
		packages: callTests, tests: "TestProbesWithoutAnOutcome",
	},
	{
		name: "breaker: no cause is another caller's ctx", file: "internal/call/breaker.go",
		old: "errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {", new: "false {",
		packages: callTests, tests: "TestCauseIsNoForeignCtx",
	},
	{
		name: "breaker: look-ups ask", file: "singleflight/lookup.go",
		old: "now, err := g.reach(ctx, bounded, t.value)", new: "now, err := g.manager.Client().Time(bounded, t.value)",
		packages: cache, tests: "TestRedisIsAway",
	},
	{
		name: "breaker: look-ups of several keys ask", file: "singleflight/lookup.go",
		old: "now, err := g.reach(ctx, bounded, some[0])", new: "now, err := g.manager.Client().Time(bounded, some[0])",
		packages: cache, tests: "TestRedisIsAway",
	},
	{
		name: "breaker: waits do not ask", file: "internal/lease/acquire.go",
		old: "\tif !of.Wait {\n\t\terr = m", new: "\tif true {\n\t\terr = m",
		packages: localPermitTests, tests: "TestWaitsOutlastAnOutage",
	},
	{
		name: "breaker: waits do not end with it", file: "internal/lease/life.go",
		old: "r.Away && (!a.waits || a.failsFast)", new: "r.Away",
		packages: localPermitTests, tests: "TestWaitsOutlastAnOutage",
	},
	{
		name: "breaker: a look-up's second step ends with it", file: "internal/lease/life.go",
		old: "r.Away && (!a.waits || a.failsFast)", new: "r.Away && !a.waits",
		packages: cache, tests: "TestRedisGoesAwayAfterTheLookUp",
	},
	{
		name: "breaker: tries ask", file: "internal/lease/acquire.go",
		old: "\tif !of.Wait {\n\t\terr = m", new: "\tif false {\n\t\terr = m",
		packages: localPermitTests, tests: "TestRedisIsAway",
	},
	{
		name: "breaker: a release asks", file: "internal/lease/release.go",
		old: "if err := m.client.Reachable(context.Background(), l.a.res.FirstKey()); err != nil {", new: "if err := error(nil); err != nil {",
		packages: localPermitTests, tests: "TestReleaseWhileRedisIsAway",
	},
	{
		name: "breaker: a release goes on in the background", file: "internal/lease/release.go",
		old: "\ta.step(&r, func(now moment) effect { return a.onLeave(&r, now) })\n", new: "\ta.step(nil, func(moment) effect { a.state, a.told, a.heard = over, tellNoAnswer, &r; return 0 })\n",
		packages: localPermitTests, tests: "TestReleaseWhileRedisIsAway",
	},
	{
		name: "breaker: Inspect asks", file: "internal/permits/inspect.go",
		old: "; err != nil {\n			return err\n", new: "; err != nil && false {\n			return err\n",
		packages: localPermitTests, tests: "TestRedisIsAway",
	},
	{
		name: "breaker: Inspect of a cached value asks", file: "singleflight/operate.go",
		old: "err := g.manager.Client().Reachable(ctx, r.FirstKey())", new: "err := error(nil)",
		packages: cache, tests: "TestRedisIsAway",
	},
	{
		name: "breaker: what is watched ends", file: "internal/call/breaker.go",
		old: "make(chan struct{})\n	return b.endWatched()", new: "make(chan struct{})\n	return nil",
		packages: cache, tests: "TestWaitsWhenRedisGoesAway",
	},
	{
		name: "breaker: a suspicion opens it", file: "internal/call/breaker.go",
		old: "		b.why = err\n		probe = b.open()", new: "		b.why = err",
		packages: callTests, tests: "TestSuspect",
	},
	{
		name: "breaker: a false alarm ends no wait", file: "internal/call/breaker.go",
		old: "if b.opened == opened {", new: "if b.opened == opened || true {",
		packages: cache, tests: "TestFalseAlarmEndsNoWait",
	},
	{
		name: "breaker: waits under Fail go on", file: "singleflight/wait.go",
		old: "	if f.g.cfg.OnUnavailable == LoadLocally {\n		ctx, stop", new: "	if true {\n		ctx, stop",
		packages: cache, tests: "TestWaitsWhenRedisGoesAway",
	},
	{
		name: "breaker: shared with the permits of MaxLoads", file: "singleflight/group.go",
		old: ", Shares: m}", new: "}",
		packages: cache, tests: "TestPermitsShareTheBreaker",
	},
	{
		name: "local load: not joined by callers that began after it", file: "singleflight/local.go",
		old: "q.begun >= f.called", new: "q.begun > f.called",
		packages: cache, tests: "LocalLoad",
	},
	{
		name: "local load: joined by callers that began before it", file: "singleflight/local.go",
		old: "q.begun >= f.called", new: "true",
		packages: cache, tests: "LocalLoad",
	},
	{
		name: "local load: open to all while it waits for its slot", file: "singleflight/local.go",
		old: "case f.called != 0 && q.begun", new: "case q.begun",
		packages: cache, tests: "TestLoadThatWaitsForItsSlotIsOpenToAll",
	},
	{
		name: "local load: its end starts the next one", file: "singleflight/flight.go",
		old: "		f.g.free(f)\n", new: "",
		packages: cache, tests: "LocalLoad",
	},
	{
		name: "local load: one's own invalidation starts the next one", file: "singleflight/drop.go",
		old: "f != nil && f.called != 0 {", new: "false {",
		packages: cache, tests: "LocalLoad",
	},
	{
		name: "local load: one at a time", file: "singleflight/wait.go",
		old: "first := g.localFlights[f.key] == nil", new: "first := true",
		packages: cache, tests: "LocalLoad",
	},
	{
		name: "local load: what one call parked loads together", file: "singleflight/local.go",
		old: "f.next.parkedBy = all[0]", new: "f.next.parkedBy = q",
		packages: cache, tests: "TestManyKeysBehindALocalLoad",
	},
	{
		name: "local load: not begun for nobody", file: "singleflight/local.go",
		old: "if len(f.requests) == 0 {", new: "if false {",
		packages: cache, tests: "LocalLoad",
	},
	{
		name: "slot: kept until the loader has returned", file: "singleflight/slots.go",
		old: "if returned != nil {", new: "if returned != nil && false {",
		packages: cache, tests: "TestMaxLoadsHoldsWhileRedisIsAway",
	},
	{
		name: "slot: also beside a permit", file: "singleflight/slots.go",
		old:      "		isBack, err := d.takeSlot(giveBack == nil)\n",
		new:      "		if giveBack != nil {\n			defer giveBack()\n			return d.callLoader()\n		}\n		isBack, err := d.takeSlot(giveBack == nil)\n",
		packages: cache, tests: "TestMaxLoadsHoldsWhileRedisIsAway",
	},
	{
		name: "slot: a revoked load frees it", file: "singleflight/slots.go",
		old: "if errors.Is(context.Cause(d.ctx), leasehold.ErrRevoked) {", new: "if false {",
		packages: cache, tests: "TestRevokedLoadFreesItsSlot",
	},
	{
		name: "slot: freed once", file: "singleflight/slots.go",
		old:      "free := sync.OnceFunc(func() {\n		<-g.slots\n		if giveBack != nil {\n			giveBack()\n		}\n	})",
		new:      "_ = sync.OnceFunc\n	free := func() {\n		<-g.slots\n		if giveBack != nil {\n			giveBack()\n		}\n	}",
		packages: cache, tests: "TestRevokedLoadFreesItsSlot",
	},
	{
		name: "slot: loads that wait for one ask Redis again", file: "singleflight/slots.go",
		old: "if noPermit && g.manager", new: "if false && g.manager",
		packages: cache, tests: "TestLoadsThatWaitForASlotAskRedisAgain",
	},
	{
		name: "slot: but not those that cannot use its answer", file: "singleflight/slots.go",
		old: "return f.leased || f.alone ||", new: "return f.leased ||",
		packages: cache, tests: "TestCallerThatCannotLookAgain",
	},
	{
		name: "outage: an Observer is told of calls that fail", file: "singleflight/observe.go",
		old: "		g.failed(began, errs)\n		return", new: "		return",
		packages: cache, tests: "TestObserverIsTold",
	},
	{
		name: "outage: but not of callers that left", file: "singleflight/observe.go",
		old: " && !slices.Contains(errs, context.Canceled)", new: "",
		packages: cache, tests: "TestObserverIsTold",
	},
	{
		name: "an invalidation outlasts an outage", file: "singleflight/invalidate.go",
		old: "dropBound = dropTriesFor + call.Bound", new: "dropBound = call.Bound",
		packages: cache, tests: "TestInvalidateOutlastsAnOutage",
	},
}
