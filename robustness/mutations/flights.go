package main

// flightScripts are the guards of the scripts of cached values.
var flightScripts = []mutation{
	{
		name: "flight: void time of an enter", file: "luascripts/loads/enter.lua",
		old: "if void_from > 0 and us >= void_from then", new: "if false then",
		packages: loads,
	},
	{
		name: "flight: one load at a time", file: "luascripts/loads/enter.lua",
		old: "if other then", new: "if false then",
		packages: loads,
	},
	{
		name: "flight: the value that came meanwhile", file: "luascripts/loads/enter.lua",
		old: "if head ~= '' and head ~= rejected_value then", new: "if false then",
		packages: loads,
	},
	{
		name: "flight: a remembered failure", file: "luascripts/loads/enter.lua",
		old: "if remembered and (rejected_failure", new: "if false and (rejected_failure",
		packages: loads,
	},
	{
		name: "flight: undecodable bytes are named exactly", file: "luascripts/loads/enter.lua",
		old: "if #rejected_value ~= 40 or redis.sha1hex(stored) ~= rejected_value then return", new: "if true then return",
		packages: loads,
	},
	{
		name: "flight: tokens differ", file: "luascripts/loads/enter.lua",
		old: "token = math.max(last + 1, us)", new: "token = 1700000000000000",
		packages: loads,
	},
	{
		name: "flight: a retried enter finds its own lease", file: "luascripts/loads/enter.lua",
		old: "if expiry > now and last <= MOST then return { 1, us, expiry - now, last, 0 } end", new: "",
		packages: loads,
	},
	{
		name: "flight: an invalidation moves the load aside", file: "luascripts/loads/shared/drop.lua",
		old: "redis.call('ZREM', holders, member)", new: "",
		packages: loads,
	},
	{
		name: "flight: an invalidation drops the value", file: "luascripts/loads/shared/drop.lua",
		old: "redis.call('DEL', value, failure, published)", new: "redis.call('DEL', failure, published)",
		packages: loads,
	},
	{
		name: "flight: an invalidation drops the failure", file: "luascripts/loads/shared/drop.lua",
		old: "redis.call('DEL', value, failure, published)", new: "redis.call('DEL', value, published)",
		packages: loads,
	},
	{
		name: "flight: an invalidation drops the record", file: "luascripts/loads/shared/drop.lua",
		old: "redis.call('DEL', value, failure, published)", new: "redis.call('DEL', value, failure)",
		packages: loads,
	},
	{
		name: "flight: an invalidated load may hand out", file: "luascripts/loads/shared/drop.lua",
		old: "redis.call('ZADD', invalidated, till, member .. ' ' .. string.format('%.0f', last))", new: "",
		packages: loads,
	},
	{
		name: "flight: only a holder stores", file: "luascripts/loads/publish.lua",
		old: "if tonumber(redis.call('ZSCORE', holders, member) or 0) > now then", new: "if true then",
		packages: loads,
	},
	{
		name: "flight: an invalidated load doesn't store", file: "luascripts/loads/publish.lua",
		old:      "if tonumber(redis.call('ZSCORE', invalidated, entry) or 0) > now then state = 2 end",
		new:      "if tonumber(redis.call('ZSCORE', invalidated, entry) or 0) > now then state = 1 end",
		packages: loads,
	},
	{
		name: "flight: a publication sent twice gets the same answer", file: "luascripts/loads/publish.lua",
		old: "if recorded_token == ARGV[2] then", new: "if false then",
		packages: loads,
	},
	{
		name: "flight: a load that lands tells its waiters", file: "luascripts/loads/publish.lua",
		old:      "return { state, us, tell(token, state == 1, #envelope <= MAX_INLINE and how .. envelope or how) }",
		new:      "return { state, us, 0 }",
		packages: loads,
	},
	{
		name: "flight: only its own waiters get an invalidated load", file: "luascripts/loads/shared/load.lua",
		old: "return from, running and '+inf' or from", new: "return from, '+inf'",
		packages: loads,
	},
	{
		name: "flight: a spent fence issues no token", file: "luascripts/loads/enter.lua",
		old: "if last > MOST or (last == MOST and not other) then", new: "if false then",
		packages: loadFaults, tests: "TestFaultFence",
	},
	{
		name: "flight: a fence that is no number counts as lost", file: "luascripts/loads/shared/load.lua",
		old: "if last and last > 0 then return", new: "if last then return",
		packages: loadFaults, tests: "TestFaultFence",
	},
	{
		name: "flight: a lease that is given back wakes the waiters", file: "luascripts/loads/leave.lua",
		old: "tell((last_token()), true, 'F')", new: "",
		packages: loads,
	},
	{
		name: "flight: invalidated loads are renewed", file: "luascripts/loads/renew.lua",
		old: "expiry, token, entry = invalidated_load(member)", new: "expiry = nil",
		packages: loads,
	},
	{
		name: "flight: a load ends when nobody waits", file: "luascripts/loads/renew.lua",
		old: "if count_waiters(token or last, key == holders) == 0 then", new: "if false then",
		packages: loads,
	},
	{
		name: "flight: and goes on while somebody does", file: "luascripts/loads/renew.lua",
		old: "if count_waiters(token or last, key == holders) == 0 then", new: "if true then",
		packages: loads,
	},
	{
		name: "flight: a waiter that missed the message learns by asking", file: "luascripts/loads/ask.lua",
		old: "elseif published_token == token then", new: "elseif false then",
		packages: loads,
	},
	{
		name: "flight: the waiters of a dead load enter again", file: "luascripts/loads/ask.lua",
		old: "if place ~= last or not running_till then load_till = invalidated_load(nil, place) end", new: "load_till = load_till or now + 1000",
		packages: loads,
	},
}

// flights are the guards of the Go code of cached values.
var flights = []mutation{
	{
		name: "flight: an invalidation reaches other schemas", file: "singleflight/drop.go",
		old: "d.others[other] = false", new: "d.others[other] = true",
		packages: cache,
	},
	{
		name: "flight: a put that may have run is not sent again", file: "singleflight/drop.go",
		old: "return d.put == nil || d.own", new: "return true",
		packages: cache,
	},
	{
		name: "flight: a loader does not wait for its own key", file: "singleflight/do.go",
		old: "if above.IsOwnKey(g.loadedKey(t)) {", new: "if false {",
		packages: cache, tests: "TestLoaderThatAsks",
	},
	{
		name: "flight: a wait that closes a cycle is refused", file: "internal/cycles/cycles.go",
		old: "if anyWaitsFor(k, r, map[*Load]bool{}) {", new: "if false {",
		packages: cache, tests: "TestLoadsThatAsk",
	},
	{
		name: "flight: a load without callers keeps no other alive", file: "singleflight/flight.go",
		old: "f.load.endForAll(loads.ErrUnwanted)", new: "_ = 0",
		packages: cache, tests: "TestCycleThrough",
	},
	{
		name: "flight: a request whose caller has left does not start anew", file: "singleflight/flight.go",
		old: "bool { return q.left }", new: "bool { return false }",
		packages: cache, tests: "TestCallerThatLeaves",
	},
	{
		name: "flight: sentinels cross", file: "singleflight/callers.go",
		old: "matched += separator + s.text", new: "_ = s.text",
		packages: cache, tests: "TestSentinels",
	},
	{
		name: "flight: late joiners are told apart", file: "singleflight/flight.go",
		old: "q.place, q.joinedBeforeAsk = f, f.joined, false", new: "q.place, q.joinedBeforeAsk = f, f.joined, true",
		packages: cache,
	},
	{
		name: "flight: joining ends before publishing", file: "singleflight/publish.go",
		old: "others: f.takeRequests()}", new: "others: func() []*request[T] { all := f.takeRequests(); f.g.flights[f.key] = f; return all }()}",
		packages: cache,
	},
	{
		name: "flight: late joiners of an invalidated load ask again", file: "singleflight/publish.go",
		old: "\t\ts.hand(before, later)\n\tdefault:", new: "\t\ts.hand(s.others, nil)\n\tdefault:",
		packages: cache,
	},
	{
		name: "flight: so do late joiners elsewhere", file: "singleflight/wait.go",
		old: "case before && atHand:", new: "case atHand:",
		packages: cache,
	},
	{
		name: "flight: a lost load's failure is not shared", file: "singleflight/publish.go",
		old: "if s.failed != nil {", new: "if false {",
		packages: cache,
	},
	{
		name: "flight: a lost load's value is not shared", file: "singleflight/publish.go",
		old: "s.hand(nil, s.others)", new: "s.hand(s.others, nil)",
		packages: cache, tests: "AfterALostLease",
	},
	{
		name: "flight: a load without callers is not watched", file: "singleflight/flight.go",
		old: "loads.Unwatch(&f.lease)", new: "_ = 0",
		packages: cache,
	},
	{
		name: "flight: a load's ctx ends with its lease", file: "singleflight/load.go",
		old: "d.endFor(f, context.Cause(held))", new: "_ = held",
		packages: cache,
	},
	{
		name: "flight: the loader's ctx is nobody's own", file: "singleflight/load.go",
		old: "cycles.Begin(context.WithoutCancel(from.ctx),", new: "cycles.Begin(from.ctx,",
		packages: cache,
	},
	{
		name: "flight: Goexit of a loader is noticed", file: "singleflight/callers.go",
		old: "r = &raised{what: c.runs, how: \"called runtime.Goexit\", goexit: true}", new: "r = nil",
		packages: cache,
	},
	{
		name: "flight: a method of a loader's error that ends its goroutine is noticed", file: "singleflight/callers.go",
		old: "\t\t\t\tp.failed = &failure{ended,", new: "\t\t\t\t_ = &failure{ended,",
		packages: cache, tests: "TestHostile",
	},
	{
		name: "flight: a codec that ends its goroutine is noticed", file: "singleflight/callers.go",
		old: "\t\t\t\t\tone.encoding = ended", new: "\t\t\t\t\tone.encoding = nil",
		packages: cache, tests: "TestCodec",
	},
	{
		name: "flight: values beside an error are kept", file: "singleflight/callers.go",
		old: "p.parts = d.partsOf(c, values)", new: "if err == nil {\n\t\t\tp.parts = d.partsOf(c, values)\n\t\t}",
		packages: cache, tests: "TestDoMany",
	},
	{
		name: "flight: a decoding that does not end does not hold up its caller", file: "singleflight/codec.go",
		old: "case <-ctx.Done():", new: "case <-context.Background().Done():",
		packages: cache, tests: "TestDecoding",
	},
	{
		name: "flight: a line of the log that does not end holds up nothing", file: "singleflight/observe.go",
		old: "case <-late.C:", new: "case <-(chan time.Time)(nil):",
		packages: cache, tests: "TestHostileLogger",
	},
	{
		name: "flight: with a Codec the names of types count", file: "internal/codec/types.go",
		old: "f.all && named {", new: "f.all && named && false {",
		packages: "./internal/codec", tests: "TestVersions",
	},
	{
		name: "flight: with a Codec hidden fields count", file: "internal/codec/types.go",
		old: "\tcase f.all:\n\t\treturn true\n", new: "",
		packages: "./internal/codec", tests: "TestVersions",
	},
	{
		name: "flight: a time-out doesn't read as the caller's deadline", file: "singleflight/callers.go",
		old: "if context.Cause(ctx) == ErrLoadTimeout && errors.Is(err, context.DeadlineExceeded) {", new: "if false {",
		packages: cache,
	},
	{
		name: "flight: a stale value never masks ErrNotFound", file: "singleflight/request.go",
		old: "return q.stale != nil && !errors.Is(err, ErrNotFound) &&", new: "return q.stale != nil &&",
		packages: cache,
	},
	{
		name: "flight: another schema is a miss", file: "singleflight/lookup.go",
		old: "if env.Schema != g.cfg.Schema || (", new: "if (",
		packages: cache,
	},
	{
		name: "flight: refreshes are not offered again at once", file: "singleflight/flight.go",
		old: "if now.Before(g.refreshPausedUntil[q.key]) {", new: "if false && now.IsZero() {",
		packages: cache,
	},
	{
		name: "flight: a large value stays here", file: "singleflight/publish.go",
		old: "case len(data) > g.cfg.MaxValueBytes:", new: "case false:",
		packages: cache,
	},
	{
		name: "flight: without Redis no caller joins that can reach it", file: "singleflight/wait.go",
		old: "\t\tf.closeJoining()\n\t\tfirst :=", new: "\t\tfirst :=",
		packages: cache, tests: "LocalLoad",
	},
	{
		name: "flight: a slow call doesn't age values", file: "internal/call/servers.go",
		old: "!k.known || s.Got.Sub(old.Got) >= maxSampleAge || s.Micros > old.Latest(s.Got) || old.Latest(s.Got) >= s.Latest(s.Got)", new: "old != s || true",
		packages: cache + " " + loadFaults, tests: "Test[^F]|TestFaultSlow",
	},
	{
		name: "flight: a message of an older load is not believed", file: "internal/loads/loads.go",
		old: "case err != nil || token != q.awaits.Load():", new: "case err != nil:",
		packages: leases,
	},
	{
		name: "flight: replies are checked by their envelope's sum", file: "internal/envelope/decode.go",
		old: "if data[sumAt] != codeUint32 || uint64(checksum(0, data[kindAt:])) != number(data[sumAt+1:kindAt]) {", new: "if false {",
		packages: "./internal/envelope",
	},
	{
		name: "flight: a value that contains itself is not encoded", file: "internal/codec/msgpack.go",
		old: "if err := CheckDepth(v); err != nil {", new: "if err := CheckDepth(nil); err != nil {",
		packages: "./internal/codec",
	},
	{
		name: "flight: declared lengths are checked", file: "internal/codec/bounded.go",
		old: "n > rest || values > rest", new: "n > rest && values > rest",
		packages: "./internal/codec",
	},
}
