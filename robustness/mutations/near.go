package main

const (
	nearReading = "internal/near/read.go"
	nearDrop    = "internal/near/drop.go"
	nearWriter  = "internal/near/writer.go"
	nearCache   = "internal/near/cache.go"

	nearStore    = "./internal/near"
	nearContract = "./internal/tests/contract/singleflight"
)

// near are the guards of copies in the memory of processes, and of their read leases.
var near = []mutation{
	{
		name: "near: mark first, then acknowledge", file: nearDrop,
		old:      "	if s := c.byNear[d.Near]; s != nil {\n		c.outdate(s)\n	}\n	q := c.acks[node]",
		new:      "	if s := c.byNear[d.Near]; s != nil {\n		go func() { time.Sleep(20 * time.Millisecond); c.mu.Lock(); defer c.mu.Unlock(); c.outdate(s) }()\n	}\n	q := c.acks[node]",
		packages: nearContract, tests: "TestNear.*(Acknowledges|Invalidation)",
	},
	{
		name: "near: the lease counts from before the sending", file: nearReading,
		old: "sent := one.Sent.Sub(c.born)", new: "sent := time.Since(c.born)",
		packages: nearContract, tests: "TestNearWaitsForAReader",
	},
	{
		name: "near: a drop marks reads under way", file: nearCache,
		old:      "	if s.reading != nil {\n		s.reading.outdated = true\n	}\n	c.door.forget",
		new:      "	c.door.forget",
		packages: nearContract, tests: "TestNearReadUnderWay",
	},
	{
		name: "near: a renewal does not outlive a drop", file: nearReading,
		old: "case r.outdated || c.closed:", new: "case r.outdated && r.known == \"\" || c.closed:",
		packages: nearContract, tests: "TestNearReadUnderWay",
	},
	{
		name: "near: invalidations wait", file: "singleflight/near.go",
		old: "if len(told) > 0 && !g.line", new: "if len(told) < 0 && !g.line",
		packages: nearContract, tests: "TestNear(Wait|Nothing)",
	},
	{
		name: "near: only hot keys are registered", file: "internal/near/door.go",
		old: "const registerAt = 4", new: "const registerAt = 1",
		packages: nearContract, tests: "TestNearRegistersOnlyHotKeys",
	},
	{
		name: "near: drops are heard", file: "internal/near/line.go",
		old: "			l.cache.onDrop(d)", new: "			_ = d",
		packages: nearContract, tests: "TestNearNothingOld",
	},
	{
		name: "near: an invalidation leaves registrations", file: "luascripts/loads/invalidate.lua",
		old: "local running, others = drop()\n", new: "local running, others = drop()\nredis.call('DEL', near)\n",
		packages: nearContract, tests: "TestNearSecondInvalidation",
	},
	{
		name: "near: the score is rounded up", file: "luascripts/loads/near_read.lua",
		old: "local score = now + 1 + tonumber(ARGV[2])", new: "local score = now + tonumber(ARGV[2])",
		packages: scriptTests, tests: "TestModelOfFlights",
	},
	{
		name: "near: scores rise", file: "luascripts/loads/near_read.lua",
		old: "math.max(score, tonumber(before) + 1)", new: "math.max(score, tonumber(before))",
		packages: scriptTests, tests: "TestModelOfFlights|TestNear",
	},
	{
		name: "near: acknowledgements count by number", file: nearWriter,
		old:      "	w.last++\n",
		new:      "	if w.last&1 == 0 {\n		w.last++\n	}\n	if t := w.calls[strconv.FormatUint(w.last, 36)]; t != nil {\n		return t\n	}\n",
		packages: nearStore, tests: "TestWriter",
	},
	{
		name: "near: an acknowledgement names its reader", file: nearWriter,
		old: "	if _, waits := t.readers[reader]; !waits {\n		return\n	}", new: "	clear(t.readers)",
		packages: nearStore + " " + nearContract, tests: "TestWriter|TestNearSecond",
	},
	{
		name: "near: the own copy goes", file: "singleflight/drop.go",
		old: "	g.near.Outdate(d.key) // also", new: "	// also",
		packages: nearContract, tests: "TestNear(OwnCopy|NothingOld)",
	},
	{
		name: "near: the own copy goes with a failure, too", file: "singleflight/drop.go",
		old: "	g.near.Outdate(d.key) // also", new: "	if err == nil {\n		g.near.Outdate(d.key)\n	} // also",
		packages: nearContract, tests: "TestNearOwnCopy",
	},
	{
		name: "near: each schema lists the readers anew", file: "singleflight/drop.go",
		old: "		g.found(d, told, one, reply)\n", new: "		if own {\n			g.found(d, told, one, reply)\n		} else {\n			g.line.Writer().End(told)\n		}\n",
		packages: nearContract, tests: "TestNearReadersOfAllSchemas",
	},
	{
		name: "near: the door has two slots", file: "internal/near/door.go",
		old: "if other := &set[1]; d.worth(other, now) < d.worth(k, now) {", new: "if other := &set[1]; d.worth(other, now) < 0*d.worth(k, now) {",
		packages: nearStore, tests: "TestDoorHasTwoSlots",
	},
	{
		name: "near: Close takes registrations back", file: nearDrop,
		old: "		c.takeBack()\n", new: "",
		packages: nearContract, tests: "TestNearClose",
	},
	{
		name: "near: Close waits for near reads", file: nearDrop,
		old: "		c.reading.Wait()\n", new: "",
		packages: nearContract, tests: "TestNearClose",
	},
	{
		name: "near: readers that are not told are waited out", file: nearWriter,
		old: "t.acked = nil; d.Rest > 0", new: "t.acked = nil; d.Rest < 0",
		packages: nearStore, tests: "TestWriter",
	},
	{
		name: "near: a value that a call got outdates a read under way", file: nearReading,
		old: "!reply.Registered, r.seen != \"\" && r.seen != head,", new: "!reply.Registered,",
		packages: nearContract, tests: "TestNearHitIsNeverOlder",
	},
	{
		name: "near: one refresh per copy", file: "singleflight/request.go",
		old: " && (seen.copy == nil || seen.copy.Refreshing.CompareAndSwap(false, true)):", new: ":",
		packages: nearContract, tests: "TestNearRefreshesEarlyOnce",
	},
	{
		name: "near: a near read that fails drops no copy", file: nearReading,
		old: "	case err != nil: // no copy is dropped because of it\n", new: "	case err != nil:\n		c.outdate(s)\n",
		packages: nearContract, tests: "TestNearReadsThatFail",
	},
	{
		name: "near: a full server is not asked again and again", file: nearReading,
		old: "= now + int64(min(c.cfg.For, time.Second))", new: "= now",
		packages: nearContract, tests: "TestNearReadsThatFail",
	},
	{
		name: "near: the handle is told again", file: nearWriter,
		old: "t.tell = t.tell || due && !quiet\n		if (t.tell || due)", new: "if t.tell",
		packages: nearContract, tests: "TestNear(Lost|SecondInvalidation)",
	},
	{
		name: "near: a handle without copies listens and tells", file: nearWriter,
		old: "t.replied, t.tell = near, sent, now.Sub(sent), true, untold", new: "t.replied = near, sent, now.Sub(sent), true",
		packages: nearStore, tests: "TestWriter",
	},
	{
		name: "near: a reader that is still registered is not done", file: "luascripts/loads/near_tell.lua",
		old: "lasts and 1 or 0", new: "0",
		packages: nearContract, tests: "TestNear(Lost|SecondInvalidation)",
	},
}
