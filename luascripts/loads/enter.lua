-- Decides what to do about a value that is missing or too old: take the value that was stored in the meantime,
-- load it, or wait for the load that is running.
-- KEYS  as in keys
-- ARGV  1 member   2 ttl of the lease (ms)   3 void_from   4 wait   1 = queue if a load runs, 0 = answer "busy"
--       5 rejected_value    identifies a value that is not good enough: the first 22 bytes of its envelope, or the
--                           SHA1 (40 hex digits) of bytes that are no envelope; '' = there was none
--       6 rejected_failure  the SHA1 of a failure that is no envelope; '' = none
-- Reply 1, now, remaining, token, 0   granted: load
--       2|3, now, lease end in ms, token, waiting   queued on that load; busy
--       6|7, now, 0, 0, 0   void; given up before
--       8|9, now, 0, 0, 0, envelope   value; remembered failure
-- Cost  granted or queued: TIME, GETRANGE, GET, some six reads, three to six writes; never more than O(log n) of
--       the waiters.
-- Concurrency: another copy of this call may run before this one, after it, or never. The lease may have been
-- taken, published or invalidated since the caller looked. The answer "queued" says that the load with that
-- token is running and is not invalidated now.
-- include shared/clock
local member, ttl, void_from = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
local rejected_value, rejected_failure = ARGV[5], ARGV[6]
if void_from > 0 and us >= void_from then return { 6, us, 0, 0, 0 } end
-- include loads/shared/load, shared/keep, shared/purge_waiters, loads/shared/list_schema
local head = redis.call('GETRANGE', value, 0, 21)
if head ~= '' and head ~= rejected_value then
  local stored = redis.call('GET', value)
  if #rejected_value ~= 40 or redis.sha1hex(stored) ~= rejected_value then return { 8, us, 0, 0, 0, stored } end
end
local remembered = redis.call('GET', failure)
if remembered and (rejected_failure == '' or redis.sha1hex(remembered) ~= rejected_failure) then
  return { 9, us, 0, 0, 0, remembered }
end

-- Reads of every key that is written later: a wrong type ends the script here.
local last, last_text = last_token()
local expiry = tonumber(redis.call('ZSCORE', holders, member) or 0)
local queued = redis.call('ZSCORE', queue, member)
local sign = redis.call('ZSCORE', alive, member)
redis.call('STRLEN', published)
redis.call('ZCARD', schemas)
if expiry > now and last <= MOST then return { 1, us, expiry - now, last, 0 } end
if sign and not queued then
  local owner = member
  -- include shared/why_gone
  return gone or { 7, us, 0, 0, 0 }
end
local till, token = invalidated_load(member)
if till then return { 1, us, till - now, token, 0 } end -- another copy was granted, and the load was invalidated since

local other, till = holder()
if last > MOST or (last == MOST and not other) then
  -- include shared/spent_fence
  return spent_fence(last_text)
end
if other then
  if ARGV[4] == '0' then return { 3, us, till - now, last, redis.call('ZCARD', queue) } end
  if last == 0 then -- the fence was evicted: any newer token will do
    last = us
    redis.call('SET', fence, last, 'PX', till - now + ALIVE)
  end
  redis.call('ZADD', queue, last, member)
  redis.call('ZADD', alive, now + ALIVE, member)
  keep(queue, now + ALIVE)
  keep(alive, now + ALIVE)
  purge_waiters()
  return { 2, us, till - now, last, redis.call('ZCARD', queue) }
end

-- The fence outlives the lease and every waiter of the load. If it is lost all the same, the clock makes the
-- next token greater.
token = math.max(last + 1, us)
redis.call('SET', fence, token, 'PX', ttl + ALIVE)
redis.call('ZADD', holders, now + ttl, member)
keep(holders, now + ttl)
list_schema(now + ttl + ALIVE)
local expired = redis.call('ZCARD', holders) - 1
if expired > 0 then redis.call('ZREMRANGEBYRANK', holders, 0, math.min(expired, BATCH) - 1) end
if queued then dequeue(member) end
return { 1, us, ttl, token, 0 }
