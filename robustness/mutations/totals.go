package main

const (
	totalsTests = "./internal/totals"
	simulation  = "./internal/tests/simulation"
	inVain      = "./internal/tests/contract/semaphore"
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
		old: "    if mark then end_mark(served[i], tonumber(mark)) end\n", new: "",
		packages: totalsTests, tests: "MarkEnds|LastWaiter",
	},
	{
		name: "total: the turns of the last waiter are charged before they go", file: "luascripts/totals/shared/turns.lua",
		old: "  drop_served() -- one of them may have a mark\n", new: "",
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
		name: "total: a key's own limit, when handing over", file: "luascripts/totals/shared/charges.lua",
		old: "if not head or in_use_of(key) + head.permits > head.limit then", new: "if not head then",
		packages: totalsTests, tests: "NextInLine",
	},
	{
		name: "total: a heavy request stands aside", file: "luascripts/totals/shared/turns.lua",
		old: "elseif not passes(head, tag) then", new: "else",
		packages: totalsTests, tests: "HoldsUp",
	},
	{
		name: "total: giving up is charged", file: "luascripts/totals/shared/waiters.lua",
		old: "if mark then end_mark(member, tonumber(mark)) end", new: "if mark then redis.call('ZREM', turns, member) end",
		packages: inVain, tests: "StopNobody",
	},
	{
		name: "total: a grant that did harm is charged", file: "luascripts/totals/shared/turns.lua",
		old: "if mark then end_mark(served[i], tonumber(mark)) end", new: "if mark then redis.call('ZREM', turns, served[i]) end",
		packages: totalsTests, tests: "LastWaiter",
	},
	{
		name: "total: the key is charged, not the request", file: "luascripts/totals/shared/charges.lua",
		old: "math.min(mark - HARMS, now), ':' .. key_of(member)", new: "math.min(mark - HARMS, now), ':' .. member",
		packages: totalsTests, tests: "LastWaiter|Model",
	},
	{
		name: "total: the family is charged", file: "luascripts/totals/shared/charges.lua",
		old: "  level = charge_of(family_charge, since)\n", new: "  level = 0\n",
		packages: inVain + " " + totalsTests, tests: "StopNobody|Model",
	},
	{
		name: "total: the family rests", file: "luascripts/totals/shared/charges.lua",
		old: "local rest = aside_until(family_charge, HELD_UP)", new: "local rest = nil",
		packages: inVain + " " + totalsTests, tests: "StopNobody|Model",
	},
	{
		name: "total: each time aside is twice as long", file: "luascripts/totals/shared/charges.lua",
		old: "HELD_UP * math.min(2 ^ times, MOST_ASIDE)", new: "HELD_UP",
		packages: totalsTests, tests: "Aside",
	},
	{
		name: "total: the time of a request that holds others up now counts for the family", file: "luascripts/totals/shared/charges.lua",
		old: "math.max(charge_of(charge, since), charge_of(family_charge, since))", new: "charge_of(charge, since)",
		packages: totalsTests, tests: "Family",
	},
	{
		name: "total: newcomers do not take the mark", file: "luascripts/totals/shared/charges.lua",
		old: "if head and head.member == marked[1] and put_in_front(head.key, tag) then return true end", new: "",
		packages: totalsTests, tests: "Newcomer",
	},
	{
		name: "total: the key that stood aside first is next", file: "luascripts/totals/shared/charges.lua",
		old: "      if put_in_front(key, tag) then return true end\n", new: "",
		packages: totalsTests, tests: "Aside",
	},
	{
		name: "total: a request that fits tells that it is held up", file: "luascripts/totals/enter.lua",
		old: "if is_first and fits() then note_harm() end\n", new: "",
		packages: inVain + " " + totalsTests, tests: "StopNobody|Behind",
	},
	{
		name: "total: a request that fits is not kept back", file: "luascripts/totals/shared/turns.lua",
		old: "  bring_back()\n", new: "",
		packages: totalsTests, tests: "HoldsUp|Aside",
	},
	{
		name: "setting: the one that was called later counts", file: "luascripts/shared/check_setting.lua",
		old: "if last and number < last and last <= us then return 7 end", new: "",
		packages: scriptTests, tests: "LateSettings",
	},
	{
		name: "setting: void time", file: "luascripts/shared/check_setting.lua",
		old: "us >= number + VOID_AFTER or ", new: "",
		packages: scriptTests, tests: "LateSettings",
	},
	{
		name: "setting: a number far ahead of the clock is void", file: "luascripts/shared/check_setting.lua",
		old: " or number > us + VOID_AFTER", new: "",
		packages: scriptTests, tests: "LateSettings",
	},
	{
		name: "setting: a number ahead of the clock is not believed", file: "luascripts/shared/check_setting.lua",
		old: "math.min(number, us)", new: "number",
		packages: scriptTests, tests: "LateSettings",
	},
	{
		name: "setting: what is left ahead of the clock does not count", file: "luascripts/shared/check_setting.lua",
		old: " and last <= us then return 7", new: " then return 7",
		packages: scriptTests, tests: "LateSettings",
	},
	{
		name: "setting: of equal numbers the last to arrive wins", file: "luascripts/shared/check_setting.lua",
		old: "number < last and", new: "number <= last and",
		packages: scriptTests, tests: "LateSettings",
	},
	{
		name: "setting: each key has its own number", file: "luascripts/totals/set_limit.lua",
		old: "local verdict = check_setting('=' .. key, number)", new: "local verdict = check_setting('=', number)",
		packages: totalsTests, tests: "LateSettings|Model",
	},
	{
		name: "setting: numbers rise within a handle", file: "internal/setting/setting.go",
		old: "		at = s.last + 1\n", new: "",
		packages: "./internal/setting", tests: "SettingNumber",
	},
	{
		name: "setting: the caller waits for the clock", file: "internal/setting/setting.go",
		old: "				s.awaitClock(ctx, r.Now)\n", new: "",
		packages: "./internal/tests/contract/semaphore", tests: "WaitsForTheClock",
	},
	{
		name: "limit: a raise is granted at once", file: "luascripts/permits/set_limit.lua",
		old: "purge()\nadvance()\nif limit", new: "purge()\nif limit",
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
