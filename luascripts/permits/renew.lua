-- Pushes the expiry of a lease to ttl from now. Never shortens it, and never brings
-- a lease back: not after a leave, not after expiry, not after its key was deleted.
--
-- KEYS  holders
-- ARGV  1 member   2 permits   3 ttl (ms)
--       4 how long the lease has been held (ms), for listings; may be absent
--
-- Reply (integers)  remaining ms, 0 where the lease has ended
--
-- Cost  TIME, ZSCORE, PEXPIREAT, ZADD: O(permits * log n).
-- Who else may be where: a leave of the member may have run, or its permit may have
-- gone to another member (either way the member is not there); another copy of this
-- call may have run with a later end (which stays).
-- PEXPIREAT is the first write: it is allowed where memory has run out, and the checks
-- of the memory limit end with a script's first write.

-- include shared/clock
-- include permits/shared/held_since
local holders, member, permits = KEYS[1], ARGV[1], tonumber(ARGV[2])
local expiry = math.ceil(tonumber(redis.call('ZSCORE', holders, member) or 0)) -- see held_since
if expiry <= now then return { 0 } end
local till = now + tonumber(ARGV[3])
if till <= expiry then return { expiry - now } end
redis.call('PEXPIREAT', holders, till, 'GT')
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
