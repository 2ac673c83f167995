-- Sets the limit of a key, or the total, of a family with a total while it is in use. Waiters of any key and
-- process that now have room are granted at once; nobody loses a permit. Of two settings the one that was called
-- later counts, of any handle. A copy changes nothing that came after its call.
-- KEYS  as in keys
-- ARGV  1 key, '' = the total    2 limit, 0 = back to what each process has configured   3 handle of the caller
--       4 number  as in the set_limit of permits   5 total that the caller was configured with
-- Reply 1|6|7, now, more   as in the set_limit of permits. Then outcomes
-- Cost  O(log n), and the work of advance.
-- Concurrency: as in the set_limit of permits. Each key, and the total, has a number of its own in alive.
-- include permits/shared/constants, totals/shared/constants, totals/shared/keys, shared/clock
local key, limit, handle, number = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4])
local caller_total = tonumber(ARGV[5])
-- include totals/shared/use, totals/shared/waiters, totals/shared/turns, shared/check_setting
-- Reads come first, of every key that is written later: a wrong type ends the script here.
for _, set in ipairs({ queue, line, places }) do redis.call('ZCARD', set) end
local verdict = check_setting('=' .. key, number)
if verdict ~= 1 then return { verdict, us, 0 } end

note_setting('=' .. key, number)
if limit == '0' then redis.call('HDEL', limits, key) else redis.call('HSET', limits, key, limit) end
has_stored, stored_limits = redis.call('HLEN', limits) > 0, {}
stored_total = has_stored and tonumber(redis.call('HGET', limits, '') or '')
purge()
if key ~= '' then refresh(key) end
advance()
finish()
return with_own_outcomes({ 1, us, more })
