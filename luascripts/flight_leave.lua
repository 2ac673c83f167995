-- flight_leave: give the lease back without a result, or stop waiting, whichever
-- it was. Idempotent by member; never touches another's lease.
--
-- KEYS  holders, queue, alive, fence, value, failure, landed, aside
-- ARGV  1 member
--       2 void     server ms until which a copy of this member's enter may still
--                  arrive; 0 = none can. Leaves a tombstone that refuses it.
--
-- Reply (integers)  1|2|0, now µs: had the lease; was waiting; neither
--
-- Cost  O(log n), and one PUBLISH to each process that waits: these enter again.
-- ZREM comes first: it is allowed where memory has run out.

local time = redis.call('TIME')
local us = time[1] * 1000000 + time[2]
local now = math.floor(us / 1000)
-- include flight

local m, void = ARGV[1], tonumber(ARGV[2])
local state = 0
local _, token, name = aside(m)
if redis.call('ZREM', H, m) == 1 then
  state = 1
  tell(tonumber(redis.call('GET', X) or '') or 0, true, 'F')
elseif name then
  redis.call('ZREM', S, name)
  state = 1
  tell(token, false, 'F')
elseif redis.call('ZREM', Q, m) == 1 then
  redis.call('ZREM', A, m)
  state = 2
end
if void > now then
  redis.call('ZADD', A, void, m)
  keep(A, void)
end
return { state, us }
