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
	cut("near: mark first, then acknowledge", nearDrop, nearContract, "TestNear.*(Acknowledges|Invalidation)",
		"	if s := c.byNear[d.Near]; s != nil {\n		c.outdate(s)\n	}\n	q := c.acks[node]",
		"	if s := c.byNear[d.Near]; s != nil {\n		go func() { time.Sleep(20 * time.Millisecond); c.mu.Lock(); defer c.mu.Unlock(); c.outdate(s) }()\n	}\n	q := c.acks[node]"),
	cut("near: the lease counts from before the sending", nearReading, nearContract, "TestNearWaitsForAReader",
		"sent := one.Sent.Sub(c.born)", "sent := time.Since(c.born)"),
	cut("near: a drop marks reads under way", nearCache, nearContract, "TestNearReadUnderWay",
		"	if s.reading != nil {\n		s.reading.outdated = true\n	}\n	c.door.forget", "	c.door.forget"),
	cut("near: a renewal does not outlive a drop", nearReading, nearContract, "TestNearReadUnderWay",
		"case r.outdated || c.closed:", "case r.outdated && r.known == \"\" || c.closed:"),
	cut("near: invalidations wait", "singleflight/near.go", nearContract, "TestNear(Wait|Nothing)",
		"if len(told) > 0 && !g.line", "if len(told) < 0 && !g.line"),
	cut("near: only hot keys are registered", "internal/near/door.go", nearContract, "TestNearRegistersOnlyHotKeys",
		"const registerAt = 4", "const registerAt = 1"),
	cut("near: drops are heard", "internal/near/line.go", nearContract, "TestNearNothingOld",
		"			l.cache.onDrop(d)", "			_ = d"),
	cut("near: an invalidation leaves registrations", "luascripts/loads/invalidate.lua", nearContract, "TestNearSecondInvalidation",
		"local running, others = drop()\n", "local running, others = drop()\nredis.call('DEL', near)\n"),
	cut("near: the score is rounded up", "luascripts/loads/near_read.lua", scriptTests, "TestModelOfFlights",
		"local score = now + 1 + tonumber(ARGV[2])", "local score = now + tonumber(ARGV[2])"),
	cut("near: scores rise", "luascripts/loads/near_read.lua", scriptTests, "TestModelOfFlights",
		"math.max(score, tonumber(before) + 1)", "math.max(score, tonumber(before))"),
	cut("near: acknowledgements count by number", nearWriter, nearStore, "TestWriter",
		"	w.last++\n", "	if w.last&1 == 0 {\n		w.last++\n	}\n	if t := w.calls[strconv.FormatUint(w.last, 36)]; t != nil {\n		return t\n	}\n"),
	cut("near: an acknowledgement names its reader", nearWriter, nearStore+" "+nearContract, "TestWriter|TestNearSecond",
		"	if _, waits := t.readers[reader]; !waits {\n		return\n	}", "	clear(t.readers)"),
	cut("near: the own copy goes", "singleflight/drop.go", nearContract, "TestNear(OwnCopy|NothingOld)",
		"	g.near.Outdate(d.key) // also", "	// also"),
	cut("near: the own copy goes with a failure, too", "singleflight/drop.go", nearContract, "TestNearOwnCopy",
		"	g.near.Outdate(d.key) // also", "	if err == nil {\n		g.near.Outdate(d.key)\n	} // also"),
	cut("near: each schema lists the readers anew", "singleflight/drop.go", nearContract, "TestNearReadersOfAllSchemas",
		"		g.found(d, told, one, reply)\n", "		if own {\n			g.found(d, told, one, reply)\n		} else {\n			g.line.Writer().End(told)\n		}\n"),
	cut("near: the door has two slots", "internal/near/door.go", nearStore, "TestDoorHasTwoSlots",
		"if other := &set[1]; d.worth(other, now) < d.worth(k, now) {", "if other := &set[1]; d.worth(other, now) < 0*d.worth(k, now) {"),
	cut("near: Close takes registrations back", nearDrop, nearContract, "TestNearClose",
		"		c.takeBack()\n", ""),
	cut("near: a hook that ends an acknowledgement ends no later one", nearDrop, nearContract, "TestNearHookThatEnds",
		"if !done { // a hook", "if !done && false { // a hook"),
	cut("near: what an acknowledgement takes back is forgotten", nearDrop, nearContract, "TestNearClose",
		"	delete(c.loose, d.Near) // the acknowledgement takes it back\n", ""),
	cut("near: Close takes back those of copies that are gone", nearCache, nearContract, "TestNearClose",
		"	c.noteLoose(of.slot.near, of.lease)\n", ""),
	cut("near: Close takes back those of copies that found no room", nearReading, nearContract, "TestNearClose",
		"		c.noteLoose(out.slot.near, out.lease)\n", ""),
	cut("Close ends invalidations", "singleflight/invalidate.go", nearContract, "TestCloseEndsInvalidations",
		"case <-g.manager.Closing():\n", "case <-make(chan struct{}):\n"),
	cut("near: Close waits for near reads", nearDrop, nearContract, "TestNearClose|TestCloseWaitsForANearRead",
		"		c.reading.Wait()\n", ""),
	cut("near: readers that are not told are waited out", nearWriter, nearStore, "TestWriter",
		"t.acked = nil; d.Rest > 0", "t.acked = nil; d.Rest < 0"),
	cut("near: a value that a call got outdates a read under way", nearReading, nearContract, "TestNearHitIsNeverOlder",
		"!reply.Registered, r.seen != \"\" && r.seen != head,", "!reply.Registered,"),
	cut("near: one refresh per copy", "singleflight/request.go", nearContract, "TestNearRefreshesEarlyOnce",
		" && (seen.copy == nil || seen.copy.Refreshing.CompareAndSwap(false, true)):", ":"),
	cut("near: a near read that fails drops no copy", nearReading, nearContract, "TestNearReadsThatFail",
		"	case err != nil: // no copy is dropped because of it\n", "	case err != nil:\n		c.outdate(s)\n"),
	cut("near: a full server is not asked again and again", nearReading, nearContract, "TestNearReadsThatFail",
		"= now + int64(min(c.cfg.For, time.Second))", "= now"),
	cut("near: the handle is told again", nearWriter, nearContract, "TestNear(Lost|SecondInvalidation)",
		"t.tell = t.tell || due && !quiet\n		if (t.tell || due)", "if t.tell"),
	cut("near: a handle without copies listens and tells", nearWriter, nearStore, "TestWriter",
		"t.replied, t.tell = near, sent, now.Sub(sent), true, untold", "t.replied = near, sent, now.Sub(sent), true"),
	cut("near: a reader that is still registered is not done", "luascripts/loads/near_tell.lua", nearContract, "TestNear(Lost|SecondInvalidation)",
		"lasts and 1 or 0", "0"),
}
