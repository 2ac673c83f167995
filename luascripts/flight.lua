-- The verbs of the flight scripts, which keep one load of a cached value in the
-- fleet. Not a script: embed.go puts this text where a script says
-- "-- include flight". The script has set us and now before (see prelude.lua).
--
--   KEYS    1 holders  sorted set: the member that loads, score = lease end (ms)
--           2 queue    sorted set: a member per waiting process, score = the
--                      token of the load that it waits for
--           3 alive    sorted set: the same members, score = alive until (ms);
--                      a member that is not in queue is a tombstone
--           4 fence    string: the token of the last load
--           5 value    string: the envelope of the cached value
--           6 failure  string: the envelope of a remembered failure, or of the
--                      mark that the value is too large
--           7 landed   string: "<token> <state> <what>", what the last load came
--                      to, kept for those who missed the message
--           8 aside    sorted set: "<member> <token>" of loads that were
--                      invalidated, score = lease end (ms): such a load may hand
--                      out to those who wait for it, but not store
--
-- A load is told by its token, which no two loads of a key share. All scripts
-- that lead to a result leave it to the next enter who loads next: nobody but an
-- enter is ever granted the lease, so that a value that came meanwhile is seen
-- before it.

local ALIVE = 4500        -- ms: how long a sign of life keeps a place in the queue
local RECORD = 5000       -- ms: how long landed is kept; waiters ask sooner
local BATCH = 250         -- most that one call purges or tells
local RIDE = 4096         -- bytes: larger results don't ride on messages
local H, Q, A, X, V, F, L, S = unpack(KEYS)

-- Makes a key live until at (ms), and never shorter than it did.
local function keep(key, at)
  if redis.call('PEXPIREAT', key, at, 'GT') == 0 and redis.call('PTTL', key) == -1 then
    redis.call('PEXPIREAT', key, at)
  end
end

-- The member that holds the lease, and when that ends; nil where none does.
local function holder()
  local h = redis.call('ZRANGE', H, '(' .. now, '+inf', 'BYSCORE', 'LIMIT', 0, 1, 'WITHSCORES')
  return h[1], tonumber(h[2])
end

-- When an invalidated load's lease ends, by its member or its token, and both;
-- nil where there is none.
local function aside(member, token)
  local all = redis.call('ZRANGE', S, '(' .. now, '+inf', 'BYSCORE', 'LIMIT', 0, BATCH, 'WITHSCORES')
  for i = 1, #all, 2 do
    local m, t = string.match(all[i], '^(%S+) (%d+)$')
    if m and (m == member or tonumber(t) == token) then return tonumber(all[i + 1]), tonumber(t), all[i] end
  end
end

-- Drops waiters that gave no sign of life.
local function purge()
  local gone = redis.call('ZRANGE', A, '-inf', now, 'BYSCORE', 'LIMIT', 0, BATCH)
  if #gone > 0 then
    redis.call('ZREM', Q, unpack(gone))
    redis.call('ZREM', A, unpack(gone))
  end
end

-- The range of scores of those who wait for the load of a token. Where the fence
-- was lost, waiters of the running load have newer ones than it has.
local function range(token, current)
  local from = string.format('%.0f', token)
  return from, current and '+inf' or from
end

local function waiting(token, current)
  return redis.call('ZCOUNT', Q, range(token, current))
end

-- Takes waiters of a load out of the queue and sends each of their processes one
-- message; returns how many are left. Nothing hangs on the messages.
local function tell(token, current, what)
  local from, to = range(token, current)
  local all = redis.call('ZRANGE', Q, from, to, 'BYSCORE', 'LIMIT', 0, BATCH, 'WITHSCORES')
  if #all == 0 then return 0 end
  local channel = string.sub(H, 1, string.find(H, '{', 1, true) - 6) .. ':inbox:'
  local gone = {}
  for i = 1, #all, 2 do
    gone[#gone + 1] = all[i]
    local handle, seq = string.match(all[i], '^([^.]+)%.(%d+)')
    if handle then
      redis.call('PUBLISH', channel .. handle, string.format('%s %.0f 0 %.0f ', seq, us, tonumber(all[i + 1])) .. what)
    end
  end
  redis.call('ZREM', Q, unpack(gone))
  redis.call('ZREM', A, unpack(gone))
  if #gone < BATCH then return 0 end
  return redis.call('ZCOUNT', Q, from, to)
end
