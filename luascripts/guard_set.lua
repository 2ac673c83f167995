-- guard_set: write a value unless a holder with a newer token wrote before.
--
-- KEYS  1 value   2 seen: the highest token accepted
-- ARGV  1 token (decimal)   2 value   3 ttl (ms), 0 = no expiry
--
-- Reply (integers)  1 written, 0 the token is older than the one seen
--
-- Cost  GET, STRLEN, SET, SET.
-- A copy of the call that runs again writes the same value again, unless a
-- newer token was seen meanwhile. The token outlives the value by 24 hours: the
-- guard must not forget a token while a stale holder may still come.

local token, ttl = ARGV[1], tonumber(ARGV[3])
local seen = redis.call('GET', KEYS[2])
redis.call('STRLEN', KEYS[1]) -- SET would replace what is not ours, a list say
-- Compared as decimal text, length first: numbers lose digits beyond 2^53.
if seen and (#seen > #token or (#seen == #token and seen > token)) then return { 0 } end
if ttl > 0 then
  redis.call('SET', KEYS[2], token, 'PX', ttl + 86400000)
  redis.call('SET', KEYS[1], ARGV[2], 'PX', ttl)
else
  redis.call('SET', KEYS[2], token)
  redis.call('SET', KEYS[1], ARGV[2])
end
return { 1 }
