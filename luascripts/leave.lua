-- leave: give back, or leave the queue, whichever it was, and hand what is free
-- to the next in line. Idempotent by member; never touches another's permit.
--
-- KEYS  holders, queue, alive, limit (or fence, where fenced)
-- ARGV  1 member   2 permits, 0 = one, fenced: grants issue a token from fence
--       3 void     server ms until which a copy of this member's enter may still
--                  arrive; 0 = none can. Leaves a tombstone that refuses it.
--
-- Reply (integers)
--   1                 given back, and nobody waits
--   1|2|0, now µs     given back; was queued; was neither
--   followed by (seq, term ms or -limit, token) for each waiter of the same
--   handle that this call granted to or refused.
--
-- Cost  nobody waits: ZREM, EXISTS. Else O(log n) and one PUBLISH a grant.
-- Who else may be where: the lease may have expired and been granted to another
-- (another member, untouched); the enter of this member may still be under way
-- (tombstone); the next owner may be dead (probation, see the prelude).
-- ZREM comes first: it is allowed where memory has run out, and the checks of
-- the memory limit end with a script's first write.

-- include constants
local m = ARGV[1]
local gone
local fenced = ARGV[2] == '0'
if fenced or ARGV[2] == '1' then
  gone = redis.call('ZREM', KEYS[1], m)
else
  local all = { m }
  for i = 2, tonumber(ARGV[2]) do all[i] = m .. '+' .. i end
  gone = redis.call('ZREM', KEYS[1], unpack(all))
end
local plain = gone > 0 and ARGV[3] == '0' -- nothing but what is free is to be passed on
if plain and redis.call('EXISTS', KEYS[2]) == 0 then return { 1 } end

local time = redis.call('TIME')
local us = time[1] * 1000000 + time[2]
local now = math.floor(us / 1000)
local own = string.match(m, '^[^.]+')

-- A lock whose next owner is surely alive, which is the rule: what advance does,
-- in a line. The next owner waits for it, and on a server that was idle for a
-- millisecond the prelude's closures alone take a sixth of the time.
if plain and fenced and redis.call('EXISTS', KEYS[1]) == 0 then
  local head = redis.call('ZRANGE', KEYS[2], 0, 0)[1]
  local handle, seq, ttl = string.match(head, '^([^.]+)%.(%d+)%.1%.(%d+)%.1$')
  if handle and tonumber(redis.call('ZSCORE', KEYS[3], head) or 0) - now > OVERDUE then
    local term = tonumber(ttl)
    if handle ~= own and term > PROBATION then term = PROBATION end
    -- include issue
    redis.call('ZADD', KEYS[1], now + term, head)
    redis.call('PEXPIREAT', KEYS[1], now + term)
    redis.call('ZREM', KEYS[2], head)
    redis.call('ZREM', KEYS[3], head)
    if handle == own then return { 1, us, tonumber(seq), term, t } end
    local prefix = string.sub(KEYS[1], 1, string.find(KEYS[1], '{', 1, true) - 6)
    redis.call('PUBLISH', prefix .. ':inbox:' .. handle, string.format('%s %.0f %d %.0f', seq, us, term, t))
    return { 1, us }
  end
end
-- include prelude

local state = 0
if gone > 0 then
  state = 1
elseif redis.call('ZREM', Q, m) == 1 then
  redis.call('ZREM', A, m)
  state = 2
end
local void = tonumber(ARGV[3])
if void > now then
  redis.call('ZADD', A, void, m)
  keep(A, void)
end
advance()
return with_told({ state, us })
