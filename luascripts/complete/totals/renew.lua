-- Written by go generate from luascripts/totals/renew.lua and the pieces that it includes:
-- edit those.

-- Renews a lease in a family with a total: see push_expiry.
--
-- KEYS  holders, places
-- ARGV  1 member   2 permits   3 ttl (ms)
--       4 how long the lease has been held (ms), for listings; may be absent
--
-- Reply (integers)  remaining ms, 0 if the lease has ended
--
-- Cost  TIME, ZSCORE, 2 PEXPIREAT, ZADD: O(permits * log n).

-- from shared/clock.lua
-- The server's time, read once per call: us in µs, now in ms.
local time = redis.call('TIME')
local us = time[1] * 1000000 + time[2]
local now = math.floor(us / 1000)
-- from permits/shared/held_since.lua
-- The score of a permit is its expiry (ms), rounded up. Its fraction, in parts of 1/4096,
-- tells listings how long before the expiry the lease was granted: part k stands for e^(k *
-- 0.004) - 1 seconds, which is within 0.2 %. If there is no fraction, the lease was granted
-- for the TTL in the member and never renewed, so the TTL says it.
local function score_of(till, granted_before)
  local part = math.floor(math.log(1 + granted_before / 1000) / 0.004 + 0.5)
  return till - 1 + math.max(1, math.min(4095, part)) / 4096
end
-- from permits/shared/push_expiry.lua
-- Moves the expiry of all permits of a member to ttl (ms) from now, if it is held. It never
-- shortens a lease, and never brings one back: not after a leave, not after its expiry, not
-- after its key was deleted. held_for is how long (ms) the lease has been held, for listings;
-- it may be absent. Returns the time that remains (ms), 0 if the lease has ended. The script
-- has included the clock and held_since before.
--
-- PEXPIREAT is the first write because it is allowed when memory has run out. Redis checks the
-- memory limit only until the first write of a script.
local function push_expiry(holders, member, permits, ttl, held_for, places)
  local expiry = math.ceil(tonumber(redis.call('ZSCORE', holders, member) or 0)) -- see held_since
  if expiry <= now then return 0 end
  local till = now + ttl
  if till <= expiry then return expiry - now end
  redis.call('PEXPIREAT', holders, till, 'GT')
  if places then redis.call('PEXPIREAT', places, till, 'GT') end
  local args = { held_for and score_of(till, held_for + ttl) or till, member }
  for i = 2, permits do
    args[2 * i - 1], args[2 * i] = args[1], member .. '+' .. i
  end
  redis.call('ZADD', holders, 'XX', 'GT', unpack(args))
  return till - now
end
return { push_expiry(KEYS[1], ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4] or ''), KEYS[2]) }
