package main

// flightScripts are the guards of the scripts of cached values.
var flightScripts = []mutation{
	{
		name: "flight: void time of an enter", file: "luascripts/flight_enter.lua",
		old: "if void > 0 and us >= void then", new: "if false then",
		packages: loads,
	},
	{
		name: "flight: one load at a time", file: "luascripts/flight_enter.lua",
		old: "if other then", new: "if false then",
		packages: loads,
	},
	{
		name: "flight: the value that came meanwhile", file: "luascripts/flight_enter.lua",
		old: "if head ~= '' and head ~= seen then", new: "if false then",
		packages: loads,
	},
	{
		name: "flight: a remembered failure", file: "luascripts/flight_enter.lua",
		old: "if failure and (ARGV[6]", new: "if false and (ARGV[6]",
		packages: loads,
	},
	{
		name: "flight: undecodable bytes are named exactly", file: "luascripts/flight_enter.lua",
		old: "if #seen ~= 40 or redis.sha1hex(value) ~= seen then return", new: "if true then return",
		packages: loads,
	},
	{
		name: "flight: tokens differ", file: "luascripts/flight_enter.lua",
		old: "token = math.max(last + 1, us)", new: "token = 1700000000000000",
		packages: loads,
	},
	{
		name: "flight: a retried enter finds its own lease", file: "luascripts/flight_enter.lua",
		old: "if ends > now then return { 1, us, ends - now, last, 0 } end", new: "",
		packages: loads,
	},
	{
		name: "flight: an invalidation moves the load aside", file: "luascripts/flight_invalidate.lua",
		old: "redis.call('ZREM', H, m)", new: "",
		packages: loads,
	},
	{
		name: "flight: an invalidation drops the value", file: "luascripts/flight_invalidate.lua",
		old: "redis.call('DEL', V, F, L)", new: "redis.call('DEL', F, L)",
		packages: loads,
	},
	{
		name: "flight: an invalidation drops the failure", file: "luascripts/flight_invalidate.lua",
		old: "redis.call('DEL', V, F, L)", new: "redis.call('DEL', V, L)",
		packages: loads,
	},
	{
		name: "flight: an invalidation drops the record", file: "luascripts/flight_invalidate.lua",
		old: "redis.call('DEL', V, F, L)", new: "redis.call('DEL', V, F)",
		packages: loads,
	},
	{
		name: "flight: an invalidated load may hand out", file: "luascripts/flight_invalidate.lua",
		old: "redis.call('ZADD', S, ends, m .. ' ' .. last)", new: "",
		packages: loads,
	},
	{
		name: "flight: only a holder stores", file: "luascripts/flight_land.lua",
		old: "if tonumber(redis.call('ZSCORE', H, m) or 0) > now then", new: "if true then",
		packages: loads,
	},
	{
		name: "flight: an invalidated load doesn't store", file: "luascripts/flight_land.lua",
		old:      "if tonumber(redis.call('ZSCORE', S, name) or 0) > now then state = 2 end",
		new:      "if tonumber(redis.call('ZSCORE', S, name) or 0) > now then state = 1 end",
		packages: loads,
	},
	{
		name: "flight: a publication sent twice gets the same answer", file: "luascripts/flight_land.lua",
		old: "if mine == ARGV[2] then", new: "if false then",
		packages: loads,
	},
	{
		name: "flight: a load that lands tells who waits", file: "luascripts/flight_land.lua",
		old:      "return { state, us, tell(token, state == 1, #body <= RIDE and how .. body or how) }",
		new:      "return { state, us, 0 }",
		packages: loads,
	},
	{
		name: "flight: only its own waiters get an invalidated load", file: "luascripts/flight.lua",
		old: "return from, current and '+inf' or from", new: "return from, '+inf'",
		packages: loads,
	},
	{
		name: "flight: a lease that is given back wakes who waits", file: "luascripts/flight_leave.lua",
		old: "tell(tonumber(redis.call('GET', X) or '') or 0, true, 'F')", new: "",
		packages: loads,
	},
	{
		name: "flight: invalidated loads are renewed", file: "luascripts/flight_renew.lua",
		old: "ends, token, name = aside(m)", new: "ends = nil",
		packages: loads,
	},
	{
		name: "flight: a load ends when nobody waits", file: "luascripts/flight_renew.lua",
		old: "if waiting(token or last, key == H) == 0 then", new: "if false then",
		packages: loads,
	},
	{
		name: "flight: and goes on while somebody does", file: "luascripts/flight_renew.lua",
		old: "if waiting(token or last, key == H) == 0 then", new: "if true then",
		packages: loads,
	},
	{
		name: "flight: who missed the message learns by asking", file: "luascripts/flight_ask.lua",
		old: "elseif landed == token then", new: "elseif false then",
		packages: loads,
	},
	{
		name: "flight: who waits for a dead load enters again", file: "luascripts/flight_ask.lua",
		old: "if place ~= last or not till then alive = aside(nil, place) end", new: "alive = alive or now + 1000",
		packages: loads,
	},
}

// flights are the guards of the Go code of cached values.
var flights = []mutation{
	{
		name: "flight: late joiners are told apart", file: "singleflight/flight.go",
		old: "c.order, c.early = f, f.orders, false", new: "c.order, c.early = f, f.orders, true",
		packages: cache,
	},
	{
		name: "flight: joining ends before publishing", file: "singleflight/land.go",
		old: "callers: f.takeCallers()}", new: "callers: func() []*caller[T] { c := f.takeCallers(); g.flights[f.t.key] = f; return c }()}",
		packages: cache,
	},
	{
		name: "flight: late joiners of an invalidated load ask again", file: "singleflight/land.go",
		old: "\t\tg.again(l.f, l.f.look, late)\n\tdefault:", new: "\t\tg.tellJoiners(l, late)\n\tdefault:",
		packages: cache,
	},
	{
		name: "flight: so do late joiners elsewhere", file: "singleflight/follow.go",
		old: "case early && there:", new: "case there:",
		packages: cache,
	},
	{
		name: "flight: a lost load's failure is not shared", file: "singleflight/land.go",
		old: "if l.err != nil && l.raised == nil {", new: "if false {",
		packages: cache,
	},
	{
		name: "flight: a lost load's value is not shared", file: "singleflight/land.go",
		old: "g.tellFirst(l)\n\t\tg.again(l.f, l.f.look, append(early, late...))", new: "g.tellAll(l, l.callers)",
		packages: loadFaults, tests: "TestFault", servers: true,
	},
	{
		name: "flight: a load without callers is not watched", file: "singleflight/flight.go",
		old: "f.lease.Unwatch()", new: "_ = 0",
		packages: cache,
	},
	{
		name: "flight: a load's ctx ends with its lease", file: "singleflight/lead.go",
		old: "d.end(f, context.Cause(held))", new: "_ = held",
		packages: cache,
	},
	{
		name: "flight: the loader's ctx is nobody's own", file: "singleflight/lead.go",
		old: "context.WithCancelCause(context.WithoutCancel(values))", new: "context.WithCancelCause(values)",
		packages: cache,
	},
	{
		name: "flight: Goexit of a loader is noticed", file: "singleflight/lead.go",
		old: "r.raised = &raised{goexit: true}", new: "r.raised = nil",
		packages: cache,
	},
	{
		name: "flight: a time-out doesn't read as the caller's deadline", file: "singleflight/lead.go",
		old: "\t\tr.err = errLoadTimeout", new: "\t\t_ = errLoadTimeout",
		packages: cache,
	},
	{
		name: "flight: a stale value never masks ErrNotFound", file: "singleflight/want.go",
		old: "return w.stale && !errors.Is(err, ErrNotFound) &&", new: "return w.stale &&",
		packages: cache,
	},
	{
		name: "flight: another schema is a miss", file: "singleflight/value.go",
		old: "if e.Schema != g.cfg.Schema || (", new: "if (",
		packages: cache,
	},
	{
		name: "flight: refreshes are not offered again at once", file: "singleflight/flight.go",
		old: "if now.Before(until) {", new: "if now.Before(until) && false {",
		packages: cache,
	},
	{
		name: "flight: a large value stays here", file: "singleflight/land.go",
		old: "case len(data) > g.cfg.MaxValueBytes:", new: "case false:",
		packages: cache,
	},
	{
		name: "flight: without Redis nobody joins who can reach it", file: "singleflight/follow.go",
		old: "\t\tf.close()\n\t\tif g.locals", new: "\t\tif g.locals",
		packages: cache + " " + loadFaults, tests: "Test[^F]|TestFaultLocal",
	},
	{
		name: "flight: a slow call doesn't age values", file: "internal/lease/clock.go",
		old: "!c.known || got.Sub(old.got) >= clockAge || us > old.latest(got) || old.latest(got) >= s.latest(got)", new: "old != s || true",
		packages: cache + " " + loadFaults, tests: "Test[^F]|TestFaultSlow",
	},
	{
		name: "flight: a message of an older load is not believed", file: "internal/lease/settle.go",
		old: "case msg.Token != w.req.Awaits:", new: "case false:",
		packages: leases,
	},
	{
		name: "flight: replies are checked by their envelope's sum", file: "internal/envelope/decode.go",
		old: "if data[sumAt] != codeUint32 || uint64(checksum(0, data[kindAt:])) != number(data[sumAt+1:kindAt]) {", new: "if false {",
		packages: "./internal/envelope",
	},
	{
		name: "flight: declared lengths are checked", file: "internal/envelope/bounded.go",
		old: "n > rest || values > rest", new: "n > rest && values > rest",
		packages: "./internal/envelope",
	},
}
