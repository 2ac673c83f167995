-- ask: the sign of life of all waiters that one handle has on a key, and the
-- question what became of them. Whoever asks also passes on what dead holders
-- and dead waiters left, so that nothing hangs on a message.
--
-- KEYS  holders, queue, alive, limit (or fence, where fenced)
-- ARGV  1 fenced   1 = grants issue a token from fence
--       2 … members, all of one handle, at most 250
--
-- Reply (integers)
--   now µs, earliest end ms, in use, limit, waiting
--   then for each member, in order: state, remaining ms, token
--     state 1 granted, 2 queued, 0 neither: enter again
--   followed by (seq, term ms or -limit, token) for each waiter of the same
--   handle that this call granted to or refused.
--
-- Cost  O(members * log n).
-- PEXPIREAT is the first write: it is allowed where memory has run out, and the checks
-- of the memory limit end with a script's first write.

-- include constants
local time = redis.call('TIME')
local us = time[1] * 1000000 + time[2]
local now = math.floor(us / 1000)
local fenced = ARGV[1] == '1'
local own = string.match(ARGV[2], '^[^.]+')
-- include prelude

-- Reads first, and of every key that is written later: a wrong type ends the
-- script here.
local asked = {}
for i = 2, #ARGV do asked[i - 1] = ARGV[i] end
local places, signs = redis.call('ZMSCORE', Q, unpack(asked)), {}
redis.call('ZCARD', A)
redis.call('ZCARD', H)
if fenced then redis.call('GET', X) end
keep(Q, now + ALIVE)
keep(A, now + ALIVE)
for i, m in ipairs(asked) do
  if places[i] then
    signs[#signs + 1] = now + ALIVE
    signs[#signs + 1] = m
  end
end
if #signs > 0 then
  redis.call('ZADD', A, unpack(signs))
  keep(A, now + ALIVE) -- again, where the key was gone
end
purge()
advance()

local limit = cap(tonumber(string.match(asked[1], '(%d+)$')))
local reply = { us, earliest(), used(), limit, redis.call('ZCARD', Q) }
local ends = redis.call('ZMSCORE', H, unpack(asked))
places = redis.call('ZMSCORE', Q, unpack(asked))
for i = 1, #asked do
  local left = tonumber(ends[i] or 0) - now
  if left > 0 then
    reply[#reply + 1] = 1
    reply[#reply + 1] = left
    reply[#reply + 1] = token()
  else
    reply[#reply + 1] = places[i] and 2 or 0
    reply[#reply + 1] = 0
    reply[#reply + 1] = 0
  end
end
return with_told(reply)
