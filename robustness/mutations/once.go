package main

// onceTests run DoOnce, Lead and Shutdown.
const onceTests = "./internal/tests/contract/mutex"

// once holds the guards of DoOnce, Lead and Shutdown.
var once = []mutation{
	{
		name: "once: an enter looks for the completion first", file: "luascripts/permits/enter_once.lua",
		old: "if redis.call('EXISTS', KEYS[5]) == 1 then", new: "if false then",
		packages: onceTests, tests: "Slot",
	},
	{
		name: "once: a grant of another call is looked at again", file: "mutex/once.go",
		old: "if !l.ByEnter() || m.quorum != nil {", new: "if false {",
		packages: onceTests, tests: "Slot",
	},
	{
		name: "once: a grant that was queued may still be the enter's own", file: "internal/lease/enter.go",
		old: "at.byEnter = true", new: "at.byEnter = false",
		packages: onceTests, tests: "SlotIsRunOnce",
	},
	{
		name: "once: a completion that is sent again finds itself", file: "luascripts/permits/complete.lua",
		old: "redis.call('GET', done) == ARGV[1]", new: "false",
		packages: onceTests, tests: "Slot",
	},
	{
		name: "once: only a lease that lasts completes", file: "luascripts/permits/complete.lua",
		old: "if expiry > now and not repeated then", new: "if not repeated then",
		packages: onceTests, tests: "Slot|Completes",
	},
	{
		name: "once: only a lease that is held here completes", file: "internal/lease/release.go",
		old: "m.closed); was == held && mark != nil {", new: "m.closed); mark != nil {",
		packages: onceTests, tests: "Completes",
	},
	{
		name: "once: a failed run leaves the slot open", file: "mutex/once.go",
		old: "succeeded = err == nil", new: "succeeded = true",
		packages: onceTests, tests: "Slot",
	},
	{
		name: "once: Close leaves the slot open", file: "internal/lease/release.go",
		old: "\tif mark != nil {\n\t\treturn a.fail(op)\n\t}", new: "\tif mark != nil {\n\t\treturn nil\n\t}",
		packages: onceTests, tests: "Slot",
	},
	{
		name: "lead: MaxWait does not end it", file: "mutex/lead.go",
		old: "a.NoMaxWait = true", new: "a.NoMaxWait = false",
		packages: onceTests, tests: "Lead",
	},
	{
		name: "lead: an outage does not end it", file: "mutex/lead.go",
		old: "errors.Is(err, leasehold.ErrInvalid), call.Lasting(err):", new: "errors.Is(err, leasehold.ErrInvalid), errors.Is(err, leasehold.ErrUnavailable):",
		packages: onceTests, tests: "Lead",
	},
	{
		name: "lead: a lasting refusal ends it", file: "mutex/lead.go",
		old: ", call.Lasting(err):", new: ":",
		packages: onceTests, tests: "Lead",
	},
	{
		name: "lead: a loss is no failure of fn", file: "mutex/lead.go",
		old: "case ended != nil || errors.Is(left, leasehold.ErrLost):", new: "case (ended != nil || errors.Is(left, leasehold.ErrLost)) && false:",
		packages: onceTests, tests: "Lead",
	},
	{
		name: "lead: fn starts once a second", file: "mutex/lead.go",
		old: "rest = leadEvery - time.Since(began)", new: "_ = began",
		packages: onceTests, tests: "Lead",
	},
	{
		name: "shutdown: the holders finish", file: "internal/lease/manager.go",
		old: "case <-drained:\n", new: "case <-drained:\n\tcase <-time.After(0):\n",
		packages: onceTests, tests: "Shutdown",
	},
	{
		name: "shutdown: the last holder ends it", file: "internal/lease/attempt.go",
		old: "\t\t\tm.closeIfDrained()\n", new: "",
		packages: onceTests, tests: "Shutdown",
	},
	{
		name: "shutdown: the waiters are refused", file: "internal/lease/manager.go",
		old: "\tm.Refuse()\n\tm.mu.Lock()\n\tif m.drained", new: "\tm.mu.Lock()\n\tif m.drained",
		packages: onceTests, tests: "Shutdown",
	},
	{
		name: "shutdown: loads that run here finish", file: "singleflight/group.go",
		old: "return f.load == nil })", new: "return true })",
		packages: "./internal/tests/contract/singleflight", tests: "Shutdown",
	},
	{
		name: "nested: nobody waits for a lock that its ctx descends from", file: "internal/lease/acquire.go",
		old: "if above == 0 {", new: "if true {",
		packages: onceTests, tests: "Twice",
	},
	{
		name: "nested: a lock that was given back is not waited for", file: "internal/lease/lease.go",
		old: "if l.a.state != held {", new: "if false {",
		packages: onceTests, tests: "LockAbove",
	},
	{
		name: "nested: locks above the nearest one count", file: "internal/nested/nested.go",
		old: "ctx = h.Context\n", new: "return permits\n",
		packages: onceTests, tests: "Twice",
	},
	{
		name: "nested: a process's line is passed by", file: "internal/localturns/localturns.go",
		old: "if a.Wait && nested.Permits(ctx, h.m, a.Key) > 0 {", new: "if false {",
		packages: onceTests, tests: "Twice",
	},
}
