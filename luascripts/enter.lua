-- enter: take permits, or a place in the queue. Idempotent by member: sent
-- again it answers as the first time, with the same token.
--
-- KEYS  holders, queue, alive, limit (or fence, where fenced)
-- ARGV  1 member     2 permits, 0 = one, fenced: its grant issues a token from
--                      fence, and the limit is 1
--       3 ttl (ms)   4 limit
--       5 void       server µs from which on this call does nothing, 0 = never
--       6 wait       where nothing is free: '' = answer "busy", else queue, with
--                    "<ticket> <max>": place to take (µs), 0 = behind everybody;
--                    most that may wait, 0 = no bound
-- Every word costs the server time, so that there are few.
--
-- Reply (integers)
--   1, now µs, remaining ms, token, 0, 0            granted
--   2|3|4|5, now µs, earliest end ms, in use, limit, waiting
--                 2 queued, 3 busy, 4 more permits than the limit, 5 queue full
--   6|7, now µs, 0, 0, 0, 0                         void; given up before
--   followed by (seq, term ms or -limit, token) for each waiter of the same
--   handle that this call granted to or refused.
--
-- Cost  nobody waits and there is room: TIME, EXISTS, ZADD, PEXPIREAT, and SET
--       where fenced, ZCARD where not. Else O(log n), and what the prelude's
--       advance does.
-- Who else may be where: a copy of this call may run before, after or never; a
-- leave of the same member may have run before it (tombstone); other handles'
-- leaves may have granted to the member since it was queued.

-- include constants
local time = redis.call('TIME')
local us = time[1] * 1000000 + time[2]
local now = math.floor(us / 1000)
local m, ttl, void = ARGV[1], tonumber(ARGV[3]), tonumber(ARGV[5])
local fenced = ARGV[2] == '0'
if void > 0 and us >= void then return { 6, us, 0, 0, 0, 0 } end

if fenced then
  if redis.call('EXISTS', KEYS[1], KEYS[2], KEYS[3]) == 0 then
    -- Nobody holds it, so that this is no copy of a call that took the lease.
    -- include issue
    redis.call('ZADD', KEYS[1], now + ttl, m)
    redis.call('PEXPIREAT', KEYS[1], now + ttl)
    return { 1, us, ttl, t, 0, 0 }
  end
elseif ARGV[2] == '1' and redis.call('EXISTS', KEYS[2], KEYS[3], KEYS[4]) == 0 then
  local held = redis.call('ZCARD', KEYS[1])
  if held < tonumber(ARGV[4]) and redis.call('ZADD', KEYS[1], 'NX', now + ttl, m) == 1 then
    if held == 0 then
      redis.call('PEXPIREAT', KEYS[1], now + ttl)
    else
      redis.call('PEXPIREAT', KEYS[1], now + ttl, 'GT')
    end
    return { 1, us, ttl, 0, 0, 0 }
  end
end

local own = string.match(m, '^[^.]+')
-- include prelude

-- Reads first, and of every key that is written later: a wrong type ends the
-- script here.
local n, limit = fenced and 1 or tonumber(ARGV[2]), cap(tonumber(ARGV[4]))
if fenced then redis.call('GET', X) end
local ends = tonumber(redis.call('ZSCORE', H, m) or 0)
local queued = redis.call('ZSCORE', Q, m)
local sign = redis.call('ZSCORE', A, m)
if ends > now then return { 1, us, ends - now, token(), 0, 0 } end
if sign and not queued then return { 7, us, 0, 0, 0, 0 } end

-- Is anybody waiting who still counts as alive? Where the answer would take
-- too long, yes: that only sends the caller to the end of the queue.
local function waited_for()
  if redis.call('ZCARD', Q) == 0 then return false end
  local alive = redis.call('ZRANGE', A, '(' .. now, '+inf', 'BYSCORE', 'LIMIT', 0, BATCH)
  for _, w in ipairs(alive) do
    if redis.call('ZSCORE', Q, w) then return true end
  end
  return #alive == BATCH
end

local function answer(code)
  return with_told({ code, us, earliest(), used(), limit, redis.call('ZCARD', Q) })
end

if n > limit then
  if queued then
    redis.call('ZREM', Q, m)
    redis.call('ZREM', A, m)
    purge()
    advance()
  end
  return answer(4)
end

-- The first write is one that memory limits may refuse, before anything was
-- purged: an enter that is refused leaves all as it was.
if not queued and used() + n <= limit and not waited_for() then
  local t = grant(m, n, ttl)
  purge()
  return { 1, us, ttl, t, 0, 0 }
end
local ticket, max = string.match(ARGV[6], '^(%d+) (%d+)$')
if not ticket then return answer(3) end

if not queued then
  ticket = tonumber(ticket)
  if ticket == 0 then
    -- Behind the last even if the clock went back.
    local last = redis.call('ZRANGE', Q, -1, -1, 'WITHSCORES')[2]
    ticket = math.max(us, (tonumber(last or 0)) + 1)
  end
  redis.call('ZADD', Q, ticket, m)
end
redis.call('ZADD', A, now + ALIVE, m)
keep(Q, now + ALIVE)
keep(A, now + ALIVE)
purge()
advance()

-- Its own grant is the answer, not one of those told beside it.
local seq = #told > 0 and tonumber(string.match(m, '^[^.]+%.(%d+)'))
for i = 1, #told, 3 do
  if told[i] == seq then
    local reply = { 1, us, told[i + 1], told[i + 2], 0, 0 }
    for j = 1, #told do
      if j < i or j > i + 2 then reply[#reply + 1] = told[j] end
    end
    return reply
  end
end
max = tonumber(max)
if not queued and max > 0 and redis.call('ZCARD', Q) > max then
  redis.call('ZREM', Q, m)
  redis.call('ZREM', A, m)
  return answer(5)
end
return answer(2)
