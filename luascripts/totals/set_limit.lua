-- Sets the limit of a key, or the total, of a family with a total while it is in use. Waiters
-- of any key and process that now have room are granted at once; nobody loses a permit.
-- Idempotent by owner id, and ordered: a copy that arrives late does not undo a later setting.
--
-- KEYS  holders, places, queue, line, alive, ready, turns, limits
-- ARGV  1 key, '' = the total    2 limit, 0 = back to what each process has configured
--       3 handle   4 seq         together the owner id of this setting
--       5 void_from  server µs from which on this call does nothing
--       6 total that the caller was configured with
--       7 … pairs (seq, ms): earlier settings of the handle without an answer so far,
--           which may still arrive until that time. They are void from now on.
--
-- Reply (integers)
--   1|6|7, now µs, more   stored, now or by an earlier copy; void; void, because a later
--                         setting of the handle came first
--   followed by (seq, term ms or -limit, 0) for each waiter of the same handle that
--   this call granted to or refused. more = 1: there is more to hand on. The caller sends
--   the same call again at once, which then only continues to grant.
--
-- Cost  O(log n), and the work of advance.
--
-- Concurrency: another copy of this call, or a later setting, may have run before it. Either
-- has left a tombstone in alive with this owner id: "=<handle>.<seq>" for a setting that was
-- stored, "!<handle>.<seq>" for one that must never be stored.

-- include permits/shared/constants
-- include totals/shared/constants
-- include totals/shared/keys
-- include shared/clock
local key, limit, handle, void_from = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[5])
local caller_total = tonumber(ARGV[6])
if us >= void_from then return { 6, us, 0 } end

-- include totals/shared/use

-- include totals/shared/waiters

-- include totals/shared/turns

-- include shared/bury

-- Reads come first, of every key that is written later: a wrong type ends the script here.
redis.call('ZCARD', queue)
redis.call('ZCARD', line)
redis.call('ZCARD', places)
local owner = handle .. '.' .. ARGV[4]
local marks = redis.call('ZMSCORE', alive, '=' .. owner, '!' .. owner)
if marks[2] then return { 7, us, 0 } end

if not marks[1] then
  local until_ms = math.ceil(void_from / 1000)
  bury('=' .. owner, until_ms)
  for i = 7, #ARGV, 2 do bury('!' .. handle .. '.' .. ARGV[i], tonumber(ARGV[i + 1])) end
  if limit == '0' then
    redis.call('HDEL', limits, key)
  else
    redis.call('HSET', limits, key, limit)
  end
  has_stored, stored_limits = redis.call('HLEN', limits) > 0, {}
  stored_total = has_stored and tonumber(redis.call('HGET', limits, '') or '')
end
purge()
if key ~= '' then refresh(key) end
advance()
finish()
return with_own_outcomes({ 1, us, more })
