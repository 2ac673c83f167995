-- flight_inspect: what is known of a key. Changes nothing.
--
-- KEYS  holders, queue, alive, fence, value, failure, landed, aside
--
-- Reply
--   now µs, lease end in ms (0 = no load runs), token of the last load,
--   processes that wait, invalidated loads that still run,
--   ms that the value is kept (-2 = there is none), its bytes,
--   ms that the failure is remembered (-2 = none is)
--   member that loads, first 128 bytes of the value, the failure ('' = none)
--
-- Cost  ten reads, O(log n).

local time = redis.call('TIME')
local us = time[1] * 1000000 + time[2]
local now = math.floor(us / 1000)
-- include flight

local m, ends = holder()
return {
  us, ends and ends - now or 0, tonumber(redis.call('GET', X) or '') or 0,
  redis.call('ZCOUNT', A, '(' .. now, '+inf'), redis.call('ZCOUNT', S, '(' .. now, '+inf'),
  redis.call('PTTL', V), redis.call('STRLEN', V), redis.call('PTTL', F),
  m or '', redis.call('GETRANGE', V, 0, 127), redis.call('GET', F) or '',
}
