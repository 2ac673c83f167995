-- flight_renew: push the end of a load's lease to ttl from now, or, where no
-- caller of its own process is left, only as long as somebody else waits for it.
-- Never shortens a lease, and never brings one back.
--
-- KEYS  holders, queue, alive, fence, value, failure, landed, aside
-- ARGV  1 member   2 ttl (ms)
--       3 alone    1 = end the lease if nobody waits for its load
--       4 void     as in flight_leave, for a lease that ends
--
-- Reply (integers)  remaining ms, 0 where the lease has ended, -1 where nobody
--                   waits: it was given back
--
-- Cost  TIME, ZSCORE, a range of the invalidated loads where it is one of those,
--       PEXPIREAT, ZADD.
-- That nobody waits and that the lease is free is one step: who comes later finds
-- no load to wait for.

local time = redis.call('TIME')
local us = time[1] * 1000000 + time[2]
local now = math.floor(us / 1000)
-- include flight

local m, key, name = ARGV[1], H, ARGV[1]
local token
local ends = tonumber(redis.call('ZSCORE', H, m) or 0)
if ends <= now then
  ends, token, name = aside(m)
  key = S
  if not ends then return { 0 } end
end
local last = tonumber(redis.call('GET', X) or '') or 0
if ARGV[3] == '1' then
  purge()
  if waiting(token or last, key == H) == 0 then
    redis.call('ZREM', key, name)
    local void = tonumber(ARGV[4])
    if void > now then
      redis.call('ZADD', A, void, m)
      keep(A, void)
    end
    return { -1 }
  end
end
local till = now + tonumber(ARGV[2])
if till <= ends then return { ends - now } end
redis.call('PEXPIREAT', key, till, 'GT')
redis.call('ZADD', key, 'XX', 'GT', till, name)
redis.call('PEXPIREAT', X, till + ALIVE, 'GT')
return { till - now }
