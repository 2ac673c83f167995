-- Drops what is cached of a key, and takes the right to store from a running load:
-- its lease moves to invalidated, where it can be renewed and hand its result to
-- those who wait for it. The next enter loads anew.
--
-- KEYS  holders, queue, alive, fence, value, failure, published, invalidated
--
-- Reply (integers)  now µs, 1 if a load was running
--
-- Cost  TIME, GET, ZRANGE, ZCARD, three STRLEN, DEL; two writes more where a load runs.
-- Who else may be where: a load may run, be about to publish, or have published
-- (what it stored goes); another copy of this call drops what was loaded in between,
-- no more.
-- DEL comes first: it is allowed where memory has run out.

-- include shared/clock
-- include loads/shared/load
-- include shared/keep

local last = redis.call('GET', fence)
local member, till = holder()
-- Reads of every key that is written later: a wrong type ends the script here.
redis.call('ZCARD', invalidated)
for _, key in ipairs({ value, failure, published }) do redis.call('STRLEN', key) end
redis.call('DEL', value, failure, published)
if not member then return { us, 0 } end
redis.call('ZREM', holders, member)
local expired = redis.call('ZCOUNT', invalidated, '-inf', now)
if expired > 0 then redis.call('ZREMRANGEBYRANK', invalidated, 0, math.min(expired, BATCH) - 1) end
-- Where the fence was evicted, the load's token is not known: it has lost the lease.
if last then
  redis.call('ZADD', invalidated, till, member .. ' ' .. last)
  keep(invalidated, till)
end
return { us, 1 }
