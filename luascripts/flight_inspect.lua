-- flight_inspect: what is known of a key. Changes nothing.
--
-- KEYS  holders, queue, alive, fence, value, failure, landed, aside
--
-- Reply
--   now µs, lease end in ms (0 = no load runs), token of the last load,
--   processes that wait (250 at most), invalidated loads that still run,
--   ms that the value is kept (-2 = there is none), its bytes,
--   ms that the failure is remembered (-2 = none is)
--   member that loads, first 128 bytes of the value, the failure ('' = none)
--
-- Cost  twelve reads, O(log n).

local time = redis.call('TIME')
local us = time[1] * 1000000 + time[2]
local now = math.floor(us / 1000)
-- include flight

local m, ends = holder()
local waits = 0
local first = redis.call('ZRANGE', Q, 0, BATCH - 1)
if #first > 0 then
  for _, sign in ipairs(redis.call('ZMSCORE', A, unpack(first))) do
    if tonumber(sign or 0) > now then waits = waits + 1 end
  end
end
return {
  us, ends and ends - now or 0, tonumber(redis.call('GET', X) or '') or 0,
  waits, redis.call('ZCOUNT', S, '(' .. now, '+inf'),
  redis.call('PTTL', V), redis.call('STRLEN', V), redis.call('PTTL', F),
  m or '', redis.call('GETRANGE', V, 0, 127), redis.call('GET', F) or '',
}
