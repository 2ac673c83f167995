-- flight_enter: what to do about a value that is missing or too old: take the
-- value that came meanwhile, load it, or wait for the load that runs.
--
-- KEYS  holders, queue, alive, fence, value, failure, landed, aside
-- ARGV  1 member     2 ttl of the lease (ms)
--       3 void       server µs from which on this call does nothing; 0 = never
--       4 wait       1 = queue if a load runs, 0 = answer "busy"
--       5 seen       the value that won't do: the first 22 bytes of its
--                    envelope, or the SHA1 (40 hex digits) of bytes that are
--                    none; '' = none was there
--       6 poisoned   the SHA1 of a failure that is no envelope; '' = none seen
--
-- Reply
--   1, now µs, remaining ms, token, 0            granted: load
--   2|3, now µs, lease end in ms, token, waiting queued on that load; busy
--   6|7, now µs, 0, 0, 0                         void; given up before
--   8|9, now µs, 0, 0, 0, envelope               value; remembered failure
--
-- Cost  granted or queued: TIME, GETRANGE, GET, some six reads, three to six
--       writes; never more than O(log n) of the waiters.
-- Who else may be where: a copy of this call may run before, after or never; the
-- lease may have been taken, landed or invalidated since the caller looked. The
-- answer "queued" says that the load of that token runs un-invalidated now.

local time = redis.call('TIME')
local us = time[1] * 1000000 + time[2]
local now = math.floor(us / 1000)
local m, ttl, void, seen = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), ARGV[5]
if void > 0 and us >= void then return { 6, us, 0, 0, 0 } end
-- include flight

local head = redis.call('GETRANGE', V, 0, 21)
if head ~= '' and head ~= seen then
  local value = redis.call('GET', V)
  if #seen ~= 40 or redis.sha1hex(value) ~= seen then return { 8, us, 0, 0, 0, value } end
end
local failure = redis.call('GET', F)
if failure and (ARGV[6] == '' or redis.sha1hex(failure) ~= ARGV[6]) then return { 9, us, 0, 0, 0, failure } end

-- Reads of every key that is written later: a wrong type ends the script here.
local last = tonumber(redis.call('GET', X) or '') or 0
local ends = tonumber(redis.call('ZSCORE', H, m) or 0)
local queued = redis.call('ZSCORE', Q, m)
local sign = redis.call('ZSCORE', A, m)
redis.call('STRLEN', L)
if ends > now then return { 1, us, ends - now, last, 0 } end
if sign and not queued then return { 7, us, 0, 0, 0 } end
local till, token = aside(m)
if till then return { 1, us, till - now, token, 0 } end -- a copy's grant, invalidated since

local other, till = holder()
if other then
  if ARGV[4] == '0' then return { 3, us, till - now, last, redis.call('ZCARD', Q) } end
  if last == 0 then -- the fence was evicted: any newer token will do
    last = us
    redis.call('SET', X, last, 'PX', till - now + ALIVE)
  end
  redis.call('ZADD', Q, last, m)
  redis.call('ZADD', A, now + ALIVE, m)
  keep(Q, now + ALIVE)
  keep(A, now + ALIVE)
  purge()
  return { 2, us, till - now, last, redis.call('ZCARD', Q) }
end

-- The fence outlives the lease and all who may wait for it. Should it be lost,
-- the clock makes the next token greater.
token = math.max(last + 1, us)
redis.call('SET', X, token, 'PX', ttl + ALIVE)
redis.call('ZADD', H, now + ttl, m)
keep(H, now + ttl)
local dead = redis.call('ZCARD', H) - 1
if dead > 0 then redis.call('ZREMRANGEBYRANK', H, 0, math.min(dead, BATCH) - 1) end
if queued then
  redis.call('ZREM', Q, m)
  redis.call('ZREM', A, m)
end
return { 1, us, ttl, token, 0 }
