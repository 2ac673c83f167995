-- Renews a lease that its process keeps, as renew does, and says whether somebody has missed the permits that
-- the process keeps: it hears in this way of a recall whose message was lost.
-- KEYS  holders, queue, alive, keepers, and stored limit if not fenced
-- ARGV  as in renew_count
-- Reply as in renew_count; then 1 if a recall has come since the last call of the handle
-- Cost  ZCARD, ZCOUNT, ZSCORE twice, ZADD, PEXPIREAT, GET if not fenced, and the cost of renew.
-- Concurrency: as in renew. A recall takes the handle out of keepers: before this call, then the reply says so;
-- or after it, then there is a message, or the next such call says so. While the mark of a recall stands the
-- process must not keep, so it is not registered again.
-- include permits/shared/constants, shared/clock, permits/shared/held_since, permits/shared/push_expiry, permits/shared/keeper
local holders, alive, keepers, member = KEYS[1], KEYS[3], KEYS[4], ARGV[1]
local waiting, in_use = redis.call('ZCARD', KEYS[2]), redis.call('ZCOUNT', holders, '(' .. now, '+inf')
local limit = KEYS[5] and tonumber(redis.call('GET', KEYS[5]) or '') or tonumber(ARGV[4])
local handle, mark = string.match(member, '^[^.]+'), tonumber(redis.call('ZSCORE', alive, '^') or 0)
local recalled = mark > now and mark <= now + RECALLED or tonumber(redis.call('ZSCORE', keepers, handle) or 0) <= now
local remains = push_expiry(holders, member, tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[5] or ''))
if remains == 0 then
  local owner = member
  -- include shared/why_gone
  if gone then return gone end
elseif not recalled then
  redis.call('PEXPIREAT', keepers, now + KEEPER) -- first, because it is allowed when memory has run out
  redis.call('ZADD', keepers, 'XX', now + KEEPER, handle)
end
return { remains, waiting, in_use, limit, recalled and 1 or 0 }
