-- Renews a lease in a family with a total: see push_expiry.
--
-- KEYS  holders, places
-- ARGV  1 member   2 permits   3 ttl (ms)
--       4 how long the lease has been held (ms), for listings; may be absent
--
-- Reply (integers)  remaining ms, 0 if the lease has ended; or the error REVOKED <reason>
--
-- Cost  TIME, ZSCORE, 2 PEXPIREAT, ZADD: O(permits * log n).
--
-- Concurrency: as in permits/renew.

-- include shared/clock
-- include permits/shared/held_since
-- include permits/shared/push_expiry
local holders = KEYS[1]
local remains = push_expiry(holders, ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4] or ''), KEYS[2])
if remains == 0 then
  local owner = string.match(ARGV[1], ':(.*)$') or ''
  -- include shared/why_gone
  if gone then return gone end
end
return { remains }
