-- Written by go generate from luascripts/permits/renew_count.lua and the pieces that it includes:
-- edit those.

-- Renews a lease, as renew does, and tells how its resource is used. A process whose
-- lease serves several turns asks so whether any other wants its turn.
--
-- KEYS  holders, queue, and stored limit where not fenced
-- ARGV  1 member   2 permits   3 ttl (ms)   4 limit
--       5 how long the lease has been held (ms), for listings; may be absent
--
-- Reply (integers)  remaining ms, 0 where the lease has ended; waiting; permits in use;
--   limit in force
--   Waiters that died are counted for up to 4.5 s: that only makes the process give
--   the lease back.
--
-- Cost  ZCARD, ZCOUNT, GET where not fenced, and that of renew.
-- Who else may be where: as of renew. A request may come to wait right after this
-- call: it waits for as long as the process may use the answer.

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
local holders, member, permits = KEYS[1], ARGV[1], tonumber(ARGV[2])
local reply = { 0, redis.call('ZCARD', KEYS[2]), redis.call('ZCOUNT', holders, '(' .. now, '+inf') }
reply[4] = KEYS[3] and tonumber(redis.call('GET', KEYS[3]) or '') or tonumber(ARGV[4])
local expiry = math.ceil(tonumber(redis.call('ZSCORE', holders, member) or 0)) -- see held_since
if expiry <= now then return reply end
local till = now + tonumber(ARGV[3])
reply[1] = math.max(expiry, till) - now
if till <= expiry then return reply end
redis.call('PEXPIREAT', holders, till, 'GT')
local score = till
if ARGV[5] then score = score_of(till, tonumber(ARGV[5]) + ARGV[3]) end
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
return reply
