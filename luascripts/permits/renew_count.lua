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

-- include shared/clock
-- include permits/shared/held_since
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
