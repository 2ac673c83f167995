-- Written by go generate from luascripts/loads/publish.lua and the pieces that it includes:
-- edit those.

-- Publishes the result of a load. Only the holder of the lease of a load that was not
-- invalidated may store. The result is stored, the lease given back and the waiters told in
-- one atomic step.
--
-- KEYS  holders, queue, alive, fence, value, failure, published, invalidated, schemas
-- ARGV  1 member   2 token of the load
--       3 copies_until  as in leave
--       4 prefix, 5 suffix  the envelope; the server's time goes between them
--       6 store     ms to keep it as the value; 0 = do not store; -1 = do not store, and
--                   drop the value that is there
--       7 remember  ms to keep it as the failure; 0 = do not
--
-- Reply (integers)  state, now µs, waiters left to tell
--   state 1 published; 2 invalidated in the meantime: handed to those that waited, not
--   stored; 0 the lease had ended: nothing done
--
-- Cost  O(log n), SET, and one message per waiting process. One call tells 250 of them;
--       sent again, it tells the next ones.
--
-- Concurrency: an invalidation may have run (state 2). The lease may have expired, and another
-- member may load (state 0). Another copy of this call may have run; this one finds its record
-- in published.
--
-- Storing comes before any other write. If memory has run out, it is refused with nothing
-- done, and the caller sends the call again with store and remember = 0.

local RECORD_KEPT = 5000  -- ms: how long published is kept; waiters ask sooner than that
local MAX_INLINE = 4096   -- bytes: larger results are not sent within messages
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
-- from shared/keep.lua
-- Makes a key live until at (ms). It never shortens the key's life.
local function keep(key, at)
  if redis.call('PEXPIREAT', key, at, 'GT') == 0 and redis.call('PTTL', key) == -1 then
    redis.call('PEXPIREAT', key, at)
  end
end
-- from shared/purge_waiters.lua
-- Drops waiters whose sign of life has run out, and expired tombstones. Reports whether there
-- may be more of them.
local function purge_waiters()
  local gone = redis.call('ZRANGE', alive, '-inf', now, 'BYSCORE', 'LIMIT', 0, BATCH)
  if #gone > 0 then
    redis.call('ZREM', queue, unpack(gone))
    redis.call('ZREM', alive, unpack(gone))
  end
  return #gone == BATCH
end
-- from shared/bury.lua
-- Leaves a tombstone: a copy of the member's enter that arrives before until_ms is refused.
local function bury(member, until_ms)
  redis.call('ZADD', alive, until_ms, member)
  keep(alive, until_ms)
end
-- from loads/shared/list_schema.lua
-- Lists the schema as one that is in use until at (ms), for calls that must reach all schemas
-- of the key.
local function list_schema(at)
  redis.call('ZADD', schemas, 'GT', at, schema)
  keep(schemas, at)
end

local member, token, copies_until = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
local store, remember = tonumber(ARGV[6]), tonumber(ARGV[7])
-- Read every key that is written later: a wrong type ends the script here.
local record = redis.call('GET', published)
redis.call('STRLEN', value)
redis.call('STRLEN', failure)
redis.call('ZCARD', queue)
redis.call('ZCARD', alive)
redis.call('ZCARD', schemas)

local recorded_token, recorded_state, how = string.match(record or '', '^(%d+) (%d) (.)')
if recorded_token == ARGV[2] then
  -- The messages of a repeated call carry no envelope: processes fetch the result.
  return { tonumber(recorded_state), us, tell(token, recorded_state == '1', how) }
end

local state, entry = 0, nil
if tonumber(redis.call('ZSCORE', holders, member) or 0) > now then
  state = 1
else
  entry = member .. ' ' .. ARGV[2]
  if tonumber(redis.call('ZSCORE', invalidated, entry) or 0) > now then state = 2 end
end

local envelope = ARGV[4] .. string.format('%016.0f', us) .. ARGV[5]
if state == 1 then
  if store > 0 then redis.call('SET', value, envelope, 'PX', store) end
  if store < 0 then redis.call('DEL', value) end
  if remember > 0 then
    redis.call('SET', failure, envelope, 'PX', remember)
  else
    redis.call('DEL', failure)
  end
  if math.max(store, remember) > 0 then list_schema(now + math.max(store, remember)) end
  redis.call('ZREM', holders, member)
elseif state == 2 then
  redis.call('ZREM', invalidated, entry)
end
if copies_until > now then bury(member, copies_until) end
if state == 0 then return { 0, us, 0 } end

-- S: the result is the value. H: only those that waited get it. A: like H, and it was
-- invalidated in the meantime.
how = state == 2 and 'A' or store > 0 and 'S' or 'H'
purge_waiters()
local kept = how
if how ~= 'S' and count_waiters(token, state == 1) > 0 then kept = how .. envelope end
redis.call('SET', published, ARGV[2] .. ' ' .. state .. ' ' .. kept, 'PX', RECORD_KEPT)
return { state, us, tell(token, state == 1, #envelope <= MAX_INLINE and how .. envelope or how) }
