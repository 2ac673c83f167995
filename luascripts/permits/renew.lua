-- Renews a lease: see push_expiry.
-- KEYS  holders
-- ARGV  1 member   2 permits   3 ttl (ms)   4 how long the lease has been held (ms), for listings; may be absent
-- Reply remaining, 0 if the lease has ended
-- Cost  TIME, ZSCORE, PEXPIREAT, ZADD: O(permits * log n).
-- Concurrency: a leave of the member may have run, or its permit may have gone to another member; in both cases
-- the member is not there. Another copy of this call may have set a later end, which stays.
-- include shared/clock, permits/shared/held_since, permits/shared/push_expiry
local holders, owner = KEYS[1], ARGV[1]
local remains = push_expiry(holders, owner, tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4] or ''))
if remains == 0 then
  -- include shared/why_gone
  if gone then return gone end
end
return { remains }
