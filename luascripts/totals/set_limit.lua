-- Sets the limit of a key, or the total, of a family with a total while it is in use. Waiters
-- of any key and process that now have room are granted at once; nobody loses a permit.
-- Of two settings the one that was called later counts, of any handle. A copy changes nothing
-- that came after its call.
--
-- KEYS  holders, places, queue, line, alive, ready, turns, limits
-- ARGV  1 key, '' = the total    2 limit, 0 = back to what each process has configured
--       3 handle   of the caller
--       4 number   the latest that the server's time (µs) can have been when the setting was
--                  called. Its copies have the same.
--       5 total that the caller was configured with
--
-- Reply (integers)
--   1|6|7, now µs, more   stored; void: it came 5 s after its call, or its number is that
--                         far ahead of the clock; overtaken by one that was called later
--   followed by (seq, term ms or -limit, 0) for each waiter of the same handle that
--   this call granted to or refused. more = 1: there is more to hand on. The caller sends
--   the same call again at once, which continues to grant.
--
-- Cost  O(log n), and the work of advance.
--
-- Concurrency: as in the set_limit of permits. Each key, and the total, has a number of its own
-- in alive.

-- include permits/shared/constants
-- include totals/shared/constants
-- include totals/shared/keys
-- include shared/clock
local key, limit, handle, number = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4])
local caller_total = tonumber(ARGV[5])

-- include totals/shared/use

-- include totals/shared/waiters

-- include totals/shared/turns

-- include shared/check_setting

-- Reads come first, of every key that is written later: a wrong type ends the script here.
redis.call('ZCARD', queue)
redis.call('ZCARD', line)
redis.call('ZCARD', places)
local verdict = check_setting('=' .. key, number)
if verdict ~= 1 then return { verdict, us, 0 } end

note_setting('=' .. key, number)
if limit == '0' then
  redis.call('HDEL', limits, key)
else
  redis.call('HSET', limits, key, limit)
end
has_stored, stored_limits = redis.call('HLEN', limits) > 0, {}
stored_total = has_stored and tonumber(redis.call('HGET', limits, '') or '')
purge()
if key ~= '' then refresh(key) end
advance()
finish()
return with_own_outcomes({ 1, us, more })
