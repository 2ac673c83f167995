-- Written by go generate from luascripts/loads/enter.lua and the pieces that it includes:
-- edit those.

-- Decides what to do about a value that is missing or too old: take the value that was stored
-- in the meantime, load it, or wait for the load that is running.
--
-- KEYS  holders, queue, alive, fence, value, failure, published, invalidated, schemas
-- ARGV  1 member     2 ttl of the lease (ms)
--       3 void_from  server µs from which on this call does nothing; 0 = never
--       4 wait       1 = queue if a load runs, 0 = answer "busy"
--       5 rejected_value    identifies a value that is not good enough: the first 22
--                           bytes of its envelope, or the SHA1 (40 hex digits) of bytes
--                           that are no envelope; '' = there was none
--       6 rejected_failure  the SHA1 of a failure that is no envelope; '' = none
--
-- Reply
--   1, now µs, remaining ms, token, 0            granted: load
--   2|3, now µs, lease end in ms, token, waiting queued on that load; busy
--   6|7, now µs, 0, 0, 0                         void; given up before
--   8|9, now µs, 0, 0, 0, envelope               value; remembered failure
--   error FENCESPENT                             somebody set the fence so high that no
--                                                greater token is left; nothing was done
--
-- Cost  granted or queued: TIME, GETRANGE, GET, some six reads, three to six
--       writes; never more than O(log n) of the waiters.
--
-- Concurrency: another copy of this call may run before this one, after it, or never. The
-- lease may have been taken, published or invalidated since the caller looked. The answer
-- "queued" says that the load with that token is running and is not invalidated now.

-- from shared/clock.lua
-- The server's time, read once per call: us in µs, now in ms.
local time = redis.call('TIME')
local us = time[1] * 1000000 + time[2]
local now = math.floor(us / 1000)
local member, ttl, void_from = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
local rejected_value, rejected_failure = ARGV[5], ARGV[6]
if void_from > 0 and us >= void_from then return { 6, us, 0, 0, 0 } end
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
-- from loads/shared/list_schema.lua
-- Lists the schema as one that is in use until at (ms), for calls that must reach all schemas
-- of the key.
local function list_schema(at)
  redis.call('ZADD', schemas, 'GT', at, schema)
  keep(schemas, at)
end

local head = redis.call('GETRANGE', value, 0, 21)
if head ~= '' and head ~= rejected_value then
  local stored = redis.call('GET', value)
  if #rejected_value ~= 40 or redis.sha1hex(stored) ~= rejected_value then return { 8, us, 0, 0, 0, stored } end
end
local remembered = redis.call('GET', failure)
if remembered and (rejected_failure == '' or redis.sha1hex(remembered) ~= rejected_failure) then
  return { 9, us, 0, 0, 0, remembered }
end

-- Reads of every key that is written later: a wrong type ends the script here.
local last, last_text = last_token()
local expiry = tonumber(redis.call('ZSCORE', holders, member) or 0)
local queued = redis.call('ZSCORE', queue, member)
local sign = redis.call('ZSCORE', alive, member)
redis.call('STRLEN', published)
redis.call('ZCARD', schemas)
if expiry > now and last <= MOST then return { 1, us, expiry - now, last, 0 } end
if sign and not queued then return { 7, us, 0, 0, 0 } end
local till, token = invalidated_load(member)
if till then return { 1, us, till - now, token, 0 } end -- another copy was granted, and the load was invalidated since

local other, till = holder()
if last > MOST or (last == MOST and not other) then
  -- from shared/spent_fence.lua
  -- Returns the error for a fence that is set to value: no greater token can be issued.
  local function spent_fence(value)
    local shown = string.gsub(string.sub(value, 1, 40), '%c', ' ')
    return { err = 'FENCESPENT ' .. fence .. ' is ' .. shown .. ': no greater token can be issued; delete the key' }
  end
  return spent_fence(last_text)
end
if other then
  if ARGV[4] == '0' then return { 3, us, till - now, last, redis.call('ZCARD', queue) } end
  if last == 0 then -- the fence was evicted: any newer token will do
    last = us
    redis.call('SET', fence, last, 'PX', till - now + ALIVE)
  end
  redis.call('ZADD', queue, last, member)
  redis.call('ZADD', alive, now + ALIVE, member)
  keep(queue, now + ALIVE)
  keep(alive, now + ALIVE)
  purge_waiters()
  return { 2, us, till - now, last, redis.call('ZCARD', queue) }
end

-- The fence outlives the lease and every waiter of the load. If it is lost all the same, the
-- clock makes the next token greater.
token = math.max(last + 1, us)
redis.call('SET', fence, token, 'PX', ttl + ALIVE)
redis.call('ZADD', holders, now + ttl, member)
keep(holders, now + ttl)
list_schema(now + ttl + ALIVE)
local expired = redis.call('ZCARD', holders) - 1
if expired > 0 then redis.call('ZREMRANGEBYRANK', holders, 0, math.min(expired, BATCH) - 1) end
if queued then
  redis.call('ZREM', queue, member)
  redis.call('ZREM', alive, member)
end
return { 1, us, ttl, token, 0 }
