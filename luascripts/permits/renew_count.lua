-- Renews a lease, as renew does, and reports how its resource is used. A process whose lease serves several
-- turns finds out in this way whether anybody else is waiting.
-- KEYS  holders, queue, and stored limit if not fenced
-- ARGV  1 member   2 permits   3 ttl (ms)   4 limit   5 how long the lease has been held (ms); may be absent
-- Reply remaining, 0 if the lease has ended; waiting; permits in use; limit in force
-- Waiters that died are counted for up to 4.5 s. That only makes the process give the lease back.
-- Cost  ZCARD, ZCOUNT, GET if not fenced, and the cost of renew.
-- Concurrency: as in renew. A request may begin to wait right after this call. It then waits for as long as the
-- process may use the answer.
-- include shared/clock, permits/shared/held_since, permits/shared/push_expiry
local holders = KEYS[1]
local waiting, in_use = redis.call('ZCARD', KEYS[2]), redis.call('ZCOUNT', holders, '(' .. now, '+inf')
local limit = KEYS[3] and tonumber(redis.call('GET', KEYS[3]) or '') or tonumber(ARGV[4])
local remains = push_expiry(holders, ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[5] or ''))
if remains == 0 then
  local owner = ARGV[1]
  -- include shared/why_gone
  if gone then return gone end
end
return { remains, waiting, in_use, limit }
