package main

const (
	totalsTests = "./internal/totals"
	simulation  = "./internal/tests/simulation"
)

// totals are the guards of families with a total.
var totals = []mutation{
	{
		name: "total: MaxWaiters does not count the dead of its key", file: "luascripts/totals/enter.lua",
		old: "    drop_dead_of_key()\n    advance()", new: "    advance()",
		packages: totalsTests, tests: "TestDeadWaitersOfTheKey", servers: true,
	},
	{
		name: "total: tags are virtual times, not tickets", file: "luascripts/totals/shared/turns.lua",
		old: "redis.call('ZADD', ready, math.max(virtual, finish_tag), key)", new: "redis.call('ZADD', ready, us, key)",
		packages: totalsTests, tests: "Grants|NewKey|Newcomers|Heavy",
	},
	{
		name: "total: the virtual time moves with what is granted", file: "luascripts/totals/shared/turns.lua",
		old:      "virtual = math.max(virtual, tag, math.min(virtual + head.permits / (head.share * competing), finish_tag))",
		new:      "virtual = math.max(virtual, tag)",
		packages: totalsTests, tests: "Newcomers",
	},
	{
		name: "total: the finish tag bounds the virtual time", file: "luascripts/totals/shared/turns.lua",
		old: "math.min(virtual + head.permits / (head.share * competing), finish_tag)", new: "virtual + head.permits / (head.share * competing)",
		packages: totalsTests, tests: "NoMoreThan", servers: true,
	},
	{
		name: "total: a key that stops keeps its tag", file: "luascripts/totals/shared/turns.lua",
		old: "if tag > virtual then redis.call('ZADD', turns, tag, key) end", new: "",
		packages: totalsTests, tests: "KeyThatStops|Model",
	},
	{
		name: "total: a grant ends the mark of its request", file: "luascripts/totals/shared/turns.lua",
		old: "  redis.call('ZREM', turns, unpack(served))\n", new: "",
		packages: totalsTests, tests: "MarkEnds|LastWaiter",
	},
	{
		name: "total: the turns end with the last waiter, whatever it had of them", file: "luascripts/totals/shared/turns.lua",
		old: "  drop_served() -- some of them may have stood aside\n", new: "",
		packages: totalsTests, tests: "LastWaiter",
	},
	{
		name: "total: a place in line that was there is counted once", file: "luascripts/totals/enter.lua",
		old:      "waiting = waiting + redis.call('ZADD', line, 0, place_in_line(member, ticket))",
		new:      "redis.call('ZADD', line, 0, place_in_line(member, ticket)) waiting = waiting + 1",
		packages: totalsTests, tests: "QueuedAnew",
	},
	{
		name: "total: a sign of life brings a parked waiter back", file: "luascripts/totals/ask.lua",
		old: "  redis.call('ZADD', line, unpack(in_line))\n", new: "",
		packages: totalsTests, tests: "Parked|Lost|Model",
	},
	{
		name: "total: a call that stops at its bound says so", file: "luascripts/totals/shared/turns.lua",
		old: "      more = 1\n", new: "",
		packages: totalsTests, tests: "Raise",
	},
	{
		name: "total: places is compared and mended", file: "luascripts/totals/shared/use.lua",
		old: "if held ~= redis.call('ZCARD', places) then", new: "if false then",
		packages: totalsTests, tests: "LostPlaces",
	},
	{
		name: "total: a late copy of a setting changes nothing", file: "luascripts/totals/set_limit.lua",
		old: "if not marks[1] then", new: "if true then",
		packages: totalsTests, tests: "LateSettings",
	},
	{
		name: "total: a setting that was given up is void", file: "luascripts/totals/set_limit.lua",
		old: "if marks[2] then return { 7, us, 0 } end", new: "",
		packages: totalsTests, tests: "LateSettings",
	},
	{
		name: "total: a key's own limit, when handing over", file: "luascripts/totals/shared/turns.lua",
		old: "if not head or in_use_of(key) + head.permits > head.limit then", new: "if not head then",
		packages: totalsTests, tests: "NextInLine",
	},
	{
		name: "total: a heavy request stands aside", file: "luascripts/totals/shared/turns.lua",
		old: "elseif not stands_aside(head, tag) then", new: "else",
		packages: totalsTests, tests: "HoldsUp",
	},
	{
		name: "limit: a late copy of a setting changes nothing", file: "luascripts/permits/set_limit.lua",
		old: "if not marks[1] then", new: "if true then",
		packages: scriptTests, tests: "LateSettings",
	},
	{
		name: "limit: a setting that was given up is void", file: "luascripts/permits/set_limit.lua",
		old: "if marks[2] then return { 7, us, 0 } end", new: "",
		packages: scriptTests, tests: "LateSettings",
	},
	{
		name: "limit: void time of a setting", file: "luascripts/permits/set_limit.lua",
		old: "if us >= void_from then return { 6, us, 0 } end", new: "",
		packages: scriptTests, tests: "LateSettings",
	},
	{
		name: "limit: a raise is granted at once", file: "luascripts/permits/set_limit.lua",
		old: "purge()\nadvance()\nreturn", new: "purge()\nreturn",
		packages: scriptTests, tests: "ModelOfPermits",
	},
	{
		name: "total: not beyond the total, when handing over", file: "luascripts/totals/shared/turns.lua",
		old: "elseif in_use + head.permits <= head.total then", new: "elseif in_use < head.total + 1 then",
		packages: totalsTests + " " + simulation, tests: "Simulation|Model",
	},
	{
		name: "total: not beyond the total, on the fast path", file: "luascripts/totals/enter.lua",
		old: "if held < total and", new: "if held <= total and",
		packages: totalsTests + " " + simulation, tests: "Simulation|Model",
	},
	{
		name: "total: newcomers do not pass the queue", file: "luascripts/totals/enter.lua",
		old: "if not ticket and waiting == 0 and competing == 0 and fits() then", new: "if not ticket and fits() then",
		packages: totalsTests + " " + simulation, tests: "Simulation|Model",
	},
	{
		name: "total: a key's line is by ticket", file: "luascripts/totals/shared/waiters.lua",
		old: "key, tonumber(ticket), rest)", new: "key, 4e15 - tonumber(ticket), rest)",
		packages: totalsTests + " " + simulation, tests: "Simulation|Model",
	},
	{
		name: "total: a permit that is taken anew is not dropped as expired", file: "luascripts/totals/shared/turns.lua",
		old:      "  expired = {}\n  local permits = redis.call('ZRANGE', holders, '-inf', now, 'BYSCORE', 'LIMIT', 0, MOST_PURGED)",
		new:      "  local permits = expired\n  expired = {}",
		packages: totalsTests, tests: "TakenAnew|Model",
	},
}
