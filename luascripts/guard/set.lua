-- Writes a value, unless a holder with a newer token has written before.
-- KEYS  1 value   2 seen: the highest token accepted
-- ARGV  1 token (decimal)   2 value   3 ttl (ms), 0 = no expiry
-- Reply 1 written, 0 the token is older than the one seen
-- Cost  GET, STRLEN, SET, SET.
-- Concurrency: if a copy of this call runs again, it writes the same value again, unless a newer token was seen
-- in the meantime. An earlier holder may still write later, so the token is kept 24 hours longer.
local SEEN_KEPT = 86400000 -- ms: how much longer the token is kept than the value
local value, seen = KEYS[1], KEYS[2]
local token, ttl = ARGV[1], tonumber(ARGV[3])
local newest = redis.call('GET', seen)
redis.call('STRLEN', value) -- SET would replace a key of another type, for example a list
-- Compared as decimal text, length first, because numbers lose digits beyond 2^53.
if newest and (#newest > #token or (#newest == #token and newest > token)) then return { 0 } end
if ttl > 0 then
  redis.call('SET', seen, token, 'PX', ttl + SEEN_KEPT)
  redis.call('SET', value, ARGV[2], 'PX', ttl)
else
  redis.call('SET', seen, token)
  redis.call('SET', value, ARGV[2])
end
return { 1 }
