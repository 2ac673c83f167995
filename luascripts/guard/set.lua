-- Writes a value unless a holder with a newer token wrote before.
--
-- KEYS  1 value   2 seen: the highest token accepted
-- ARGV  1 token (decimal)   2 value   3 ttl (ms), 0 = no expiry
--
-- Reply (integers)  1 written, 0 the token is older than the one seen
--
-- Cost  GET, STRLEN, SET, SET.
-- Who else may be where: another copy of this call that runs again writes the same
-- value again, unless a newer token was seen meanwhile; a holder whose lease has
-- ended may still come. So the token outlives the value by 24 hours.

local SEEN_KEPT = 86400000 -- ms: how much longer than the value its token is kept
local value, seen = KEYS[1], KEYS[2]
local token, ttl = ARGV[1], tonumber(ARGV[3])
local newest = redis.call('GET', seen)
redis.call('STRLEN', value) -- SET would replace a key of another type, a list say
-- Compared as decimal text, length first: numbers lose digits beyond 2^53.
if newest and (#newest > #token or (#newest == #token and newest > token)) then return { 0 } end
if ttl > 0 then
  redis.call('SET', seen, token, 'PX', ttl + SEEN_KEPT)
  redis.call('SET', value, ARGV[2], 'PX', ttl)
else
  redis.call('SET', seen, token)
  redis.call('SET', value, ARGV[2])
end
return { 1 }
