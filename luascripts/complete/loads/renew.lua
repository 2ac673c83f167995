-- Written by go generate from luascripts/loads/renew.lua and the pieces that it includes:
-- edit those.

-- Moves the end of a load's lease to ttl from now. If no caller of its own process is left, it
-- does so only as long as another process waits for the load. It never shortens a lease, and
-- never brings one back.
--
-- KEYS  holders, queue, alive, fence, value, failure, published, invalidated, schemas
-- ARGV  1 member   2 ttl (ms)
--       3 unwatched     1 = end the lease if nobody waits for its load
--       4 copies_until  as in leave, for a lease that ends
--
-- Reply (integers)  remaining ms; 0 if the lease has ended; -1 if nobody waits: it was
--                   given back
--
-- Cost  TIME, ZSCORE, a range of the invalidated loads if it is one of those, PEXPIREAT,
--       ZADD.
--
-- Concurrency: another process may be about to wait for this load. If its enter runs before
-- this call, the lease continues. If it runs after this call, it finds no load to wait for.
-- The check and the release are atomic.

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

local member, key, entry = ARGV[1], holders, ARGV[1]
local token
local expiry = tonumber(redis.call('ZSCORE', holders, member) or 0)
if expiry <= now then
  expiry, token, entry = invalidated_load(member)
  key = invalidated
  if not expiry then return { 0 } end
end
local last = last_token()
if ARGV[3] == '1' then
  purge_waiters()
  if count_waiters(token or last, key == holders) == 0 then
    redis.call('ZREM', key, entry)
    local copies_until = tonumber(ARGV[4])
    if copies_until > now then bury(member, copies_until) end
    return { -1 }
  end
end
local till = now + tonumber(ARGV[2])
if till <= expiry then return { expiry - now } end
redis.call('PEXPIREAT', key, till, 'GT')
redis.call('ZADD', key, 'XX', 'GT', till, entry)
redis.call('PEXPIREAT', fence, till + ALIVE, 'GT')
if key == holders then
  redis.call('ZADD', schemas, 'XX', 'GT', till + ALIVE, schema)
  redis.call('PEXPIREAT', schemas, till + ALIVE, 'GT')
end
return { till - now }
