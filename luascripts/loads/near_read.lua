-- Reads the cached value, as GET does, and registers the reader: until its score, no invalidation of the key
-- returns before the reader has dropped its copy.
-- KEYS  value, near
-- ARGV  1 handle of the reader   2 ms that it may serve its copy   3 known  the first 22 bytes of the copy that it
--       has; '' = none
-- Reply now, state, and in the states 1 and 3 the value: 0 there is no value; 1 registered; 2 registered, and the
--       value is the known one; 3 not registered: the server has no memory left, or refuses to write
-- Cost  TIME, GETRANGE, GET unless the value is known, ZSCORE, ZADD, PEXPIREAT; now and then a purge.
-- Concurrency: an invalidation runs before this script, which then finds no value or a newer one, or after it,
-- and then finds the registration. Another copy of this call, which the reader may not know of, only makes an
-- invalidation wait for longer. The score of a member rises with each registration, also within one ms. So an
-- acknowledgement that names a score ends that registration, and no later one.
-- The script reads first, and registers with pcall: a server that is full still answers.
-- include shared/clock, shared/constants, shared/keep
local value, near = KEYS[1], KEYS[2]
local member, known = ARGV[1], ARGV[3]
local text
if known == '' or redis.call('GETRANGE', value, 0, 21) ~= known then
  text = redis.call('GET', value)
  if not text then return { us, 0 } end
end
local score = now + 1 + tonumber(ARGV[2])
local before = redis.pcall('ZSCORE', near, member)
if type(before) == 'string' then score = math.max(score, tonumber(before) + 1) end
local added = redis.pcall('ZADD', near, score, member)
if type(added) == 'table' then return { us, 3, text or redis.call('GET', value) } end
keep(near, score)
if us % 32 == 0 then
  local over = redis.call('ZCOUNT', near, '-inf', now)
  if over > 0 then redis.call('ZREMRANGEBYRANK', near, 0, math.min(over, BATCH) - 1) end
end
if not text then return { us, 2 } end
return { us, 1, text }
