-- renew: push the expiry of a lease to ttl from now. Never shortens it, and
-- never brings one back: not after a leave, not after expiry, not after its key
-- was deleted.
--
-- KEYS  holders
-- ARGV  1 member   2 permits   3 ttl (ms)
--
-- Reply (integers)  remaining ms, 0 where the lease has ended
--
-- Cost  TIME, ZSCORE, PEXPIREAT, ZADD: O(permits * log n).
-- PEXPIREAT is the first write: it is allowed where memory has run out, and the checks
-- of the memory limit end with a script's first write.

local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local m, n, ends = ARGV[1], tonumber(ARGV[2]), nil
ends = tonumber(redis.call('ZSCORE', KEYS[1], m) or 0)
if ends <= now then return { 0 } end
local till = now + tonumber(ARGV[3])
if till <= ends then return { ends - now } end
redis.call('PEXPIREAT', KEYS[1], till, 'GT')
if n == 1 then
  redis.call('ZADD', KEYS[1], 'XX', 'GT', till, m)
else
  local args = { till, m }
  for i = 2, n do
    args[2 * i - 1] = till
    args[2 * i] = m .. '+' .. i
  end
  redis.call('ZADD', KEYS[1], 'XX', 'GT', unpack(args))
end
return { till - now }
