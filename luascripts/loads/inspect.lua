-- Reports the state of a key. It changes nothing.
-- KEYS  as in keys, then near
-- Reply now, lease end in ms (0 = no load runs), token of the last load, waiting processes (250 at most),
--       invalidated loads that still run, ms that the value is kept (-2 = there is none), its bytes, ms that the
--       failure is remembered (-2 = there is none), handles that may serve a copy from memory, member that loads,
--       first 128 bytes of the value, the failure ('' = none)
-- Cost  thirteen reads, O(log n).
-- Concurrency: it only reads, so any other call may run before or after it.
-- include shared/clock, loads/shared/load
local member, till = holder()
local last = last_token()
local waits = 0
local first = redis.call('ZRANGE', queue, 0, BATCH - 1)
if #first > 0 then
  for _, sign in ipairs(redis.call('ZMSCORE', alive, unpack(first))) do
    if tonumber(sign or 0) > now then waits = waits + 1 end
  end
end
return {
  us, till and till - now or 0, last,
  waits, redis.call('ZCOUNT', invalidated, '(' .. now, '+inf'),
  redis.call('PTTL', value), redis.call('STRLEN', value), redis.call('PTTL', failure),
  redis.call('ZCOUNT', KEYS[10], '(' .. now, '+inf'),
  member or '', redis.call('GETRANGE', value, 0, 127), redis.call('GET', failure) or '',
}
