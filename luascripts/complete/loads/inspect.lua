-- Written by go generate from luascripts/loads/inspect.lua and the pieces that it includes:
-- edit those.

-- Reports the state of a key. It changes nothing.
--
-- KEYS  holders, queue, alive, fence, value, failure, published, invalidated, schemas
--
-- Reply
--   now µs, lease end in ms (0 = no load runs), token of the last load,
--   waiting processes (250 at most), invalidated loads that still run,
--   ms that the value is kept (-2 = there is none), its bytes,
--   ms that the failure is remembered (-2 = there is none)
--   member that loads, first 128 bytes of the value, the failure ('' = none)
--
-- Cost  twelve reads, O(log n).

-- from shared/clock.lua
-- The server's time, read once per call: us in µs, now in ms.
local time = redis.call('TIME')
local us = time[1] * 1000000 + time[2]
local now = math.floor(us / 1000)
-- from loads/shared/load.lua
-- The functions that the scripts of loads share. They make sure that only one load of a cached
-- value runs at a time in all processes. The script has included the clock before.
--
-- A load is identified by its token, which no two loads of a key share. No script grants the
-- lease to a waiter. A waiter whose load ended without a result enters again, so that it sees
-- a value that was stored in the meantime before it loads.

-- from shared/constants.lua
local BATCH = 250         -- members: the most that one call purges, parks or tells
local ALIVE = 4500        -- ms: how long a sign of life keeps a place in the queue
-- from loads/shared/keys.lua
-- holders      sorted set: the member that loads, score = lease end (ms)
-- queue        sorted set: a member per waiting process, score = the token of the
--              load that it waits for
-- alive        sorted set: the same members, score = alive until (ms); a member
--              that is not in queue is a tombstone
-- fence        string: the token of the last load
-- value        string: the envelope of the cached value
-- failure      string: the envelope of a remembered failure, or of the mark that says that
--              the value is too large
-- published    string: "<token> <state> <how>[envelope]", the result of the last load,
--              kept for processes that missed the message
-- invalidated  sorted set: "<member> <token>" of loads that were invalidated, score =
--              lease end (ms): such a load may hand its result to those that wait for
--              it, but may not store it
-- schemas      sorted set: the schemas of the key that have a value, a failure or a load,
--              score = until when (ms). All schemas share this key. The other keys
--              belong to one schema each, and their names end with it, as ".1a2b3c4d".
--              The keys of schema 0 have no such ending.
local holders, queue, alive, fence, value, failure, published, invalidated, schemas = unpack(KEYS)
local schema = string.match(holders, '%.(%x+)$') or '0'

-- Returns the member that holds the lease, and when the lease ends; nil if nobody holds it.
local function holder()
  local first = redis.call('ZRANGE', holders, '(' .. now, '+inf', 'BYSCORE', 'LIMIT', 0, 1, 'WITHSCORES')
  return first[1], tonumber(first[2])
end

-- Returns the last token, and the text of the fence. What somebody's hand has set to no number,
-- to nan or below zero counts as lost: 0. Above MOST numbers have gaps, so two tokens could be
-- equal; all of that is MOST + 1.
local MOST = 9007199254740991 -- 2^53 - 1
local function last_token()
  local text = redis.call('GET', fence)
  local last = tonumber(text or '')
  if last and last > 0 then return math.min(math.floor(last), MOST + 1), text end
  return 0, text
end

-- Finds an invalidated load that still runs, by its member or by its token. Returns the end of
-- its lease, its token and its entry; nil if there is none.
local function invalidated_load(member, token)
  local all = redis.call('ZRANGE', invalidated, '(' .. now, '+inf', 'BYSCORE', 'LIMIT', 0, BATCH, 'WITHSCORES')
  for i = 1, #all, 2 do
    local m, t = string.match(all[i], '^(%S+) (%d+)$')
    if m and (m == member or tonumber(t) == token) then return tonumber(all[i + 1]), tonumber(t), all[i] end
  end
end

-- Returns the range of scores of the waiters of a load. If the fence was lost, waiters of the
-- running load have newer tokens than the load.
local function scores_of(token, running)
  local from = string.format('%.0f', token)
  return from, running and '+inf' or from
end

local function count_waiters(token, running)
  return redis.call('ZCOUNT', queue, scores_of(token, running))
end

-- Takes waiters of a load out of the queue and sends each of their processes one message.
-- Returns how many are left. Nothing depends on the messages.
local function tell(token, running, record)
  local from, to = scores_of(token, running)
  local all = redis.call('ZRANGE', queue, from, to, 'BYSCORE', 'LIMIT', 0, BATCH, 'WITHSCORES')
  if #all == 0 then return 0 end
  local told = {}
  for i = 1, #all, 2 do
    told[#told + 1] = all[i]
    local receiver, seq = string.match(all[i], '^([^.]+)%.(%d+)')
    if receiver then
      -- from shared/inbox.lua
      -- Sets the channel for a message to the process of the handle receiver. If '@' follows the 22
      -- random characters of a handle, its client is a Cluster client. It listens on a sharded
      -- channel in the slot of the key, "<prefix>:<kind>:{<name>:<key>}:inbox:<handle>", because a
      -- message on any other channel would cross the bus to every node. Any other handle has one
      -- channel for all keys, "<prefix>:inbox:<handle>". The code relies on the fact that every kind
      -- has three letters.
      local publish, channel
      if string.byte(receiver, 23) == 64 then
        publish, channel = 'SPUBLISH', string.sub(holders, 1, string.find(holders, '}', 1, true) + 1) .. 'inbox:' .. receiver
      else
        publish, channel = 'PUBLISH', string.sub(holders, 1, string.find(holders, '{', 1, true) - 6) .. ':inbox:' .. receiver
      end
      redis.call(publish, channel, string.format('%s %.0f 0 %.0f ', seq, us, tonumber(all[i + 1])) .. record)
    end
  end
  redis.call('ZREM', queue, unpack(told))
  redis.call('ZREM', alive, unpack(told))
  if #told < BATCH then return 0 end
  return redis.call('ZCOUNT', queue, from, to)
end

local member, till = holder()
local last = last_token()
local waits = 0
local first = redis.call('ZRANGE', queue, 0, BATCH - 1)
if #first > 0 then
  for _, sign in ipairs(redis.call('ZMSCORE', alive, unpack(first))) do
    if tonumber(sign or 0) > now then waits = waits + 1 end
  end
end
return {
  us, till and till - now or 0, last,
  waits, redis.call('ZCOUNT', invalidated, '(' .. now, '+inf'),
  redis.call('PTTL', value), redis.call('STRLEN', value), redis.call('PTTL', failure),
  member or '', redis.call('GETRANGE', value, 0, 127), redis.call('GET', failure) or '',
}
