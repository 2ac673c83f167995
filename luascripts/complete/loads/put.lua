-- Written by go generate from luascripts/loads/put.lua and the pieces that it includes:
-- edit those.

-- Stores a value that no load has made: an invalidation and a publication in one step. The
-- cached value and failure are dropped, and a running load may not overwrite the new value.
--
-- KEYS  holders, queue, alive, fence, value, failure, published, invalidated, schemas
-- ARGV  1 void_from  server µs from which on this call does nothing
--       2 prefix, 3 suffix  the envelope; the server's time goes between them
--       4 store      ms to keep it
--
-- Reply
--   1, now µs; or 6, now µs: it was void, and did nothing
--   and a string for each other schema of the key that is in use: the caller
--   invalidates these
--
-- Cost  the cost of invalidate, SET, ZADD and PEXPIREAT.
--
-- Concurrency: as in invalidate. Of two puts the later one stays. The caller sends a put again
-- only if it surely did not run. Otherwise a copy that arrives late could undo another put
-- that was answered in the meantime. void_from bounds how late a copy can arrive that the
-- caller gave up.
--
-- SET comes first: if memory has run out, it is refused with nothing done. drop then removes
-- everything that is older, and the value with it, so the value is set again after drop.

-- from shared/clock.lua
-- The server's time, read once per call: us in µs, now in ms.
local time = redis.call('TIME')
local us = time[1] * 1000000 + time[2]
local now = math.floor(us / 1000)
local void_from, store = tonumber(ARGV[1]), tonumber(ARGV[4])
if us >= void_from then return { 6, us } end
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
-- from shared/keep.lua
-- Makes a key live until at (ms). It never shortens the key's life.
local function keep(key, at)
  if redis.call('PEXPIREAT', key, at, 'GT') == 0 and redis.call('PTTL', key) == -1 then
    redis.call('PEXPIREAT', key, at)
  end
end
-- from loads/shared/drop.lua
-- Drops the cached value and the remembered failure of the schema, and takes the right to
-- store from a running load. The lease of that load moves to invalidated. There it can be
-- renewed, and can hand its result to those that wait for it. The next enter loads anew.
-- Returns 1 if a load was running, and the other schemas of the key that are in use.
local function drop()
  local last = last_token()
  local member, till = holder()
  -- Read every key that is written later: a wrong type ends the script here.
  redis.call('ZCARD', invalidated)
  for _, key in ipairs({ value, failure, published }) do redis.call('STRLEN', key) end
  local others = {}
  for _, name in ipairs(redis.call('ZRANGE', schemas, now, '+inf', 'BYSCORE', 'LIMIT', 0, BATCH)) do
    if name ~= schema then others[#others + 1] = name end
  end
  redis.call('DEL', value, failure, published)
  redis.call('ZREM', schemas, schema)
  if not member then return 0, others end
  redis.call('ZREM', holders, member)
  local expired = redis.call('ZCOUNT', invalidated, '-inf', now)
  if expired > 0 then redis.call('ZREMRANGEBYRANK', invalidated, 0, math.min(expired, BATCH) - 1) end
  -- If the fence was evicted or set by hand, the load's token is unknown, and the load has
  -- lost its lease.
  if last > 0 and last <= MOST then
    redis.call('ZADD', invalidated, till, member .. ' ' .. string.format('%.0f', last))
    keep(invalidated, till)
  end
  return 1, others
end
-- from loads/shared/list_schema.lua
-- Lists the schema as one that is in use until at (ms), for calls that must reach all schemas
-- of the key.
local function list_schema(at)
  redis.call('ZADD', schemas, 'GT', at, schema)
  keep(schemas, at)
end

local envelope = ARGV[2] .. string.format('%016.0f', us) .. ARGV[3]
-- Read every key that is written later: a wrong type ends the script here.
redis.call('STRLEN', value)
redis.call('ZCARD', holders)
redis.call('ZCARD', invalidated)
redis.call('GET', fence)
redis.call('STRLEN', failure)
redis.call('STRLEN', published)
redis.call('ZCARD', schemas)
redis.call('SET', value, envelope, 'PX', store)
local _, others = drop()
redis.call('SET', value, envelope, 'PX', store)
list_schema(now + store)
return { 1, us, unpack(others) }
