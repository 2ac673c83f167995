-- Written by go generate from luascripts/totals/renew.lua and the pieces that it includes:
-- edit those.

-- Extends a lease in a family with a total: pushes its expiry to ttl from now. Never
-- shortens it, and never brings one back: not after a leave, not after expiry, not
-- after a key was deleted.
--
-- KEYS  holders, places
-- ARGV  1 member   2 permits   3 ttl (ms)
--       4 how long the lease has been held (ms), for listings; may be absent
--
-- Reply (integers)  remaining ms, 0 where the lease has ended
--
-- Cost  TIME, ZSCORE, 2 PEXPIREAT, ZADD: O(permits * log n).
-- PEXPIREAT is the first write: it is allowed where memory has run out, and the checks
-- of the memory limit end with a script's first write.

local holders, places = KEYS[1], KEYS[2]
-- from shared/clock.lua
-- The server's time, read once per call: us in µs, now in ms.
local time = redis.call('TIME')
local us = time[1] * 1000000 + time[2]
local now = math.floor(us / 1000)
-- from permits/shared/held_since.lua
-- The score of a permit is when it expires (ms), rounded up. Its fraction, of 4096
-- parts, says to listings how long before that the lease was granted: part k stands for
-- e^(k * 0.004) - 1 seconds, which is within 0.2 %. No fraction: the TTL in the member
-- says it, because the lease was granted for that and never renewed.
local function score_of(till, granted_before)
  local part = math.floor(math.log(1 + granted_before / 1000) / 0.004 + 0.5)
  return till - 1 + math.max(1, math.min(4095, part)) / 4096
end
local member, permits = ARGV[1], tonumber(ARGV[2])
local expiry = math.ceil(tonumber(redis.call('ZSCORE', holders, member) or 0)) -- see held_since
if expiry <= now then return { 0 } end
local till = now + tonumber(ARGV[3])
if till <= expiry then return { expiry - now } end
redis.call('PEXPIREAT', holders, till, 'GT')
redis.call('PEXPIREAT', places, till, 'GT')
local score = till
if ARGV[4] then score = score_of(till, tonumber(ARGV[4]) + ARGV[3]) end
if permits == 1 then
  redis.call('ZADD', holders, 'XX', 'GT', score, member)
else
  local args = { score, member }
  for i = 2, permits do
    args[2 * i - 1] = score
    args[2 * i] = member .. '+' .. i
  end
  redis.call('ZADD', holders, 'XX', 'GT', unpack(args))
end
return { till - now }
