-- Written by go generate from luascripts/permits/renew.lua and the pieces that it includes:
-- edit those.

-- Pushes the expiry of a lease to ttl from now. Never shortens it, and never brings
-- a lease back: not after a leave, not after expiry, not after its key was deleted.
--
-- KEYS  holders
-- ARGV  1 member   2 permits   3 ttl (ms)
--
-- Reply (integers)  remaining ms, 0 where the lease has ended
--
-- Cost  TIME, ZSCORE, PEXPIREAT, ZADD: O(permits * log n).
-- Who else may be where: a leave of the member may have run, or its permit may have
-- gone to another member (either way the member is not there); another copy of this
-- call may have run with a later end (which stays).
-- PEXPIREAT is the first write: it is allowed where memory has run out, and the checks
-- of the memory limit end with a script's first write.

-- from shared/clock.lua
-- The server's time, read once per call: us in µs, now in ms.
local time = redis.call('TIME')
local us = time[1] * 1000000 + time[2]
local now = math.floor(us / 1000)
local holders, member, permits = KEYS[1], ARGV[1], tonumber(ARGV[2])
local expiry = tonumber(redis.call('ZSCORE', holders, member) or 0)
if expiry <= now then return { 0 } end
local till = now + tonumber(ARGV[3])
if till <= expiry then return { expiry - now } end
redis.call('PEXPIREAT', holders, till, 'GT')
if permits == 1 then
  redis.call('ZADD', holders, 'XX', 'GT', till, member)
else
  local args = { till, member }
  for i = 2, permits do
    args[2 * i - 1] = till
    args[2 * i] = member .. '+' .. i
  end
  redis.call('ZADD', holders, 'XX', 'GT', unpack(args))
end
return { till - now }
