-- flight_invalidate: what is cached of a key goes, and so does the right of a
-- running load to store its result: its lease moves aside, where it can be
-- renewed and hand out to those who wait for it. The next enter loads anew.
--
-- KEYS  holders, queue, alive, fence, value, failure, landed, aside
--
-- Reply (integers)  now µs, 1 if a load was running
--
-- Cost  TIME, GET, ZRANGE, ZCARD, three STRLEN, DEL; two writes more where a load runs.
-- DEL comes first: it is allowed where memory has run out. A second run drops
-- what was loaded in between, no more.

local time = redis.call('TIME')
local us = time[1] * 1000000 + time[2]
local now = math.floor(us / 1000)
-- include flight

local last = redis.call('GET', X)
local m, ends = holder()
-- Reads of every key that is written later: a wrong type ends the script here.
redis.call('ZCARD', S)
for _, key in ipairs({ V, F, L }) do redis.call('STRLEN', key) end
redis.call('DEL', V, F, L)
if not m then return { us, 0 } end
redis.call('ZREM', H, m)
local dead = redis.call('ZCOUNT', S, '-inf', now)
if dead > 0 then redis.call('ZREMRANGEBYRANK', S, 0, math.min(dead, BATCH) - 1) end
-- Where the fence was evicted, its token is not known: it has lost the lease.
if last then
  redis.call('ZADD', S, ends, m .. ' ' .. last)
  keep(S, ends)
end
return { us, 1 }
