-- Sets the limit of a semaphore's key while it is in use. Waiters of any process that now have
-- room are granted at once; nobody loses a permit. Idempotent by owner id, and ordered: a copy
-- that arrives late does not undo a later setting.
--
-- KEYS  holders, queue, alive, limit
-- ARGV  1 limit, 0 = back to the limit that each process has configured
--       2 handle   3 seq   together the owner id of this setting
--       4 void_from  server µs from which on this call does nothing
--       5 … pairs (seq, ms): earlier settings of the handle without an answer so far,
--           which may still arrive until that time. They are void from now on.
--
-- Reply (integers)
--   1|6|7, now µs, 0   stored, now or by an earlier copy; void; void, because a later
--                      setting of the handle came first
--   followed by (seq, term ms or -limit, 0) for each waiter of the same handle that this
--   call granted to or refused, and by (0, 0, 0) if the same call, sent at once, would
--   grant more. It then stores nothing.
--
-- Cost  O(log n), and the work of advance.
--
-- Concurrency: another copy of this call, or a later setting, may have run before it. Either
-- has left a tombstone in alive with this owner id: "=<handle>.<seq>" for a setting that was
-- stored, "!<handle>.<seq>" for one that must never be stored.

-- include permits/shared/constants
-- include permits/shared/keys
-- include shared/clock
local limit, handle, void_from = ARGV[1], ARGV[2], tonumber(ARGV[4])
local fenced = false
if us >= void_from then return { 6, us, 0 } end

-- include permits/shared/queue

-- include shared/bury

-- Reads come first, of every key that is written later: a wrong type ends the script here.
redis.call('GET', stored_limit)
redis.call('ZCARD', holders)
redis.call('ZCARD', queue)
local owner = handle .. '.' .. ARGV[3]
local marks = redis.call('ZMSCORE', alive, '=' .. owner, '!' .. owner)
if marks[2] then return { 7, us, 0 } end

if not marks[1] then
  bury('=' .. owner, math.ceil(void_from / 1000))
  for i = 5, #ARGV, 2 do bury('!' .. handle .. '.' .. ARGV[i], tonumber(ARGV[i + 1])) end
  if limit == '0' then
    redis.call('DEL', stored_limit)
  else
    redis.call('SET', stored_limit, limit)
  end
end
purge()
advance()
return with_own_outcomes({ 1, us, 0 })
