-- Renews a lease in a family with a total: see push_expiry.
--
-- KEYS  holders, places
-- ARGV  1 member   2 permits   3 ttl (ms)
--       4 how long the lease has been held (ms), for listings; may be absent
--
-- Reply (integers)  remaining ms, 0 if the lease has ended
--
-- Cost  TIME, ZSCORE, 2 PEXPIREAT, ZADD: O(permits * log n).
--
-- Concurrency: as in permits/renew.

-- include shared/clock
-- include permits/shared/held_since
-- include permits/shared/push_expiry
return { push_expiry(KEYS[1], ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4] or ''), KEYS[2]) }
