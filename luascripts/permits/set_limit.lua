-- Sets the limit of a semaphore's key while it is in use. Waiters of any process that now have room are granted
-- at once; nobody loses a permit. If more are in use than the limit allows, those that are kept are recalled. Of
-- two settings the one that was called later counts, of any handle. A copy changes nothing that came later.
-- KEYS  holders, queue, alive, limit
-- ARGV  1 limit, 0 = back to the limit that each process has configured   2 handle of the caller
--       3 number  the latest that the server's time (µs) can have been when the setting was called; also of copies
-- Reply 1|6|7, now, 0   stored; void: it came 5 s after its call, or its number is that far ahead of the clock;
--       overtaken by a setting that was called later. Then outcomes; (0, 0, 0): the same call would grant more
-- Cost  O(log n), and the work of advance.
-- Concurrency: another copy of this call, or another setting, may have run before it. Whichever of them was
-- called last has left its number in alive. The number is at least the server's time at the call, and its caller
-- returns only once the server's clock has passed it. So the number of a setting that is called after that is
-- greater. What is left in alive is never ahead of the clock: a number that was taken too high does not outrank
-- settings that are called after it arrived. If the clock went back since, what is left does not count. Of equal
-- numbers the last to arrive wins.
-- include permits/shared/constants, permits/shared/keys, shared/clock
local limit, handle, number = ARGV[1], ARGV[2], tonumber(ARGV[3])
local fenced = false
-- include permits/shared/queue, shared/check_setting
local recalled_until, coming_until
-- include permits/shared/recall
-- Reads come first, of every key that is written later: a wrong type ends the script here.
redis.call('GET', stored_limit)
redis.call('ZCARD', holders)
redis.call('ZCARD', queue)
local verdict = check_setting('=', number)
if verdict ~= 1 then return { verdict, us, 0 } end

note_setting('=', number)
if limit == '0' then redis.call('DEL', stored_limit) else redis.call('SET', stored_limit, limit) end
purge()
advance()
if limit == '0' or in_use() > tonumber(limit) then
  recalled_until = tonumber(redis.call('ZSCORE', alive, '^') or '')
  recall()
end
return with_own_outcomes({ 1, us, 0 })
