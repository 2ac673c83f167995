-- The engine's verbs, shared by every script that has to look at more than its
-- own fast path. Not a script: embed.go puts this text where a script says
-- "-- include prelude". The script has set before:
--
--   KEYS    1 holders   sorted set: a member per held permit, score = expiry (ms)
--           2 queue     sorted set: a member per waiter, score = ticket (µs)
--           3 alive     sorted set: the same waiters, score = alive until (ms);
--                       a member that is not in queue is a tombstone: that
--                       request was given up, and its enter is void until then
--           4 limit     string: a cap set at run time (semaphores)
--             or fence  string: the last fencing token (fenced)
--   us      the server's time in µs, read once; now: the same in ms
--   own     the handle of the caller, whose grants go into the reply
--   fenced  whether grants issue a token
--
-- Numbers go into commands as they are: the server writes 17 digits. Strings that
-- are made here want '%.0f', for tostring stops at 14.
--
-- A member is <handle>.<seq>.<permits>.<ttl ms>.<limit>: whoever hands a permit
-- on knows from it what was asked for. Permits 2 to n of a request are the
-- member with "+2" to "+n" behind it.

local H, Q, A, X = KEYS[1], KEYS[2], KEYS[3], KEYS[4]

local told = {}           -- grants to the caller's own waiters: seq, term or -limit, token

-- Makes a key live until at (ms), and never shorter than it did.
local function keep(key, at)
  if redis.call('PEXPIREAT', key, at, 'GT') == 0 and redis.call('PTTL', key) == -1 then
    redis.call('PEXPIREAT', key, at)
  end
end

-- All members of a request of n permits.
local function members(m, n)
  local all = { m }
  for i = 2, n do all[i] = m .. '+' .. i end
  return all
end

-- Permits in use that have not expired: exact without a purge, and counted once.
-- From then on only a grant changes it.
local inuse
local function used()
  inuse = inuse or redis.call('ZCOUNT', H, '(' .. now, '+inf')
  return inuse
end

-- ms until the earliest lease ends, 0 where none is held.
local function earliest()
  local e = redis.call('ZRANGE', H, '(' .. now, '+inf', 'BYSCORE', 'LIMIT', 0, 1, 'WITHSCORES')
  return e[2] and e[2] - now or 0
end

-- The cap that a request is judged by: the stored one, else its own.
local function cap(limit)
  if fenced then return limit end
  return tonumber(redis.call('GET', X) or '') or limit
end

local function issue()
  -- include issue
  return t
end

-- The token of the lease that is held now; a new one where the fence was lost.
local function token()
  if not fenced then return 0 end
  return tonumber(redis.call('GET', X) or '') or issue()
end

-- Makes m the owner of n permits for term ms. The fence first: a key of a wrong
-- type stops the script before anything else is written.
local function grant(m, n, term)
  local t, before, args = fenced and issue() or 0, used(), {}
  for _, p in ipairs(members(m, n)) do
    args[#args + 1] = now + term
    args[#args + 1] = p
  end
  redis.call('ZADD', H, unpack(args))
  if before == 0 then -- what else is in the key is over
    redis.call('PEXPIREAT', H, now + term)
  else
    keep(H, now + term)
  end
  inuse = before + n
  return t
end

-- Drops permits that expired and waiters that gave no sign of life.
local function purge()
  local dead = redis.call('ZCARD', H) - used()
  if dead > 0 then redis.call('ZREMRANGEBYRANK', H, 0, math.min(dead, BATCH) - 1) end
  local gone = redis.call('ZRANGE', A, '-inf', now, 'BYSCORE', 'LIMIT', 0, BATCH)
  if #gone > 0 then
    redis.call('ZREM', Q, unpack(gone))
    redis.call('ZREM', A, unpack(gone))
  end
end

-- Tells the owner of a queued request that it was granted (what = term), or can
-- never be (what = -limit). One message to one process; nothing hangs on it.
local function tell(handle, seq, what, t)
  if handle == own then
    told[#told + 1] = tonumber(seq)
    told[#told + 1] = what
    told[#told + 1] = t
    return
  end
  local prefix = string.sub(H, 1, string.find(H, '{', 1, true) - 6)
  redis.call('PUBLISH', prefix .. ':inbox:' .. handle, string.format('%s %.0f %d %.0f', seq, us, what, t))
end

-- Hands what is free to the head of the queue, as far as it goes, in order.
-- Heads whose sign of life is overdue are passed over and keep their place; one
-- that asks for more than is free stops the queue, so that it is not starved.
local function advance()
  local skip = 0
  for _ = 1, BATCH do
    local m = redis.call('ZRANGE', Q, skip, skip)[1]
    if not m then return end
    local left = tonumber(redis.call('ZSCORE', A, m) or 0) - now
    if left <= 0 then
      redis.call('ZREM', Q, m)
      redis.call('ZREM', A, m)
    elseif left <= OVERDUE then
      skip = skip + 1
    else
      local handle, seq, n, ttl, limit = string.match(m, '^([^.]+)%.(%d+)%.(%d+)%.(%d+)%.(%d+)$')
      n, ttl, limit = tonumber(n), tonumber(ttl), cap(tonumber(limit))
      if not handle then -- of another version: nobody knows what it asks for
        redis.call('ZREM', Q, m)
        redis.call('ZREM', A, m)
      elseif n > limit then
        redis.call('ZREM', Q, m)
        redis.call('ZREM', A, m)
        tell(handle, seq, -limit, 0)
      elseif used() + n > limit then
        return
      else
        -- The caller is alive; anybody else may be dead, and confirms by
        -- renewing within the probation.
        local term = handle == own and ttl or math.min(ttl, PROBATION)
        local t = grant(m, n, term)
        redis.call('ZREM', Q, m)
        redis.call('ZREM', A, m)
        tell(handle, seq, term, t)
        if fenced then return end -- there is one permit
      end
    end
  end
end

-- Appends the caller's own grants to a reply.
local function with_told(reply)
  for i = 1, #told do reply[#reply + 1] = told[i] end
  return reply
end
