-- Written by go generate from luascripts/loads/ask.lua and the pieces that it includes:
-- edit those.

-- Brings the sign of life of the waiters that one handle has on a key, and asks what became of
-- the loads that they wait for.
--
-- KEYS  holders, queue, alive, fence, value, failure, published, invalidated, schemas
-- ARGV  pairs, at most 250: member, token of the load that it waits for
--
-- Reply
--   now µs, ms until the first of their leases ends (0 = none is held), waiting
--   then for each member, in order: state, remaining ms, token
--     state 1 holds the lease; 2 waits; 0 neither: enter again;
--     8 the load has published: the reply has a string, in the form of published
--   and then these strings.
--   Or the error FENCESPENT, as in enter, if the token of a lease is unknown.
--
-- Cost  O(members * log n).
--
-- Concurrency: the load may have published, and its message may be lost (state 8). The load
-- may have ended without a result, or its process may be dead (state 0). Another copy of this
-- member's enter may have been granted (state 1).
--
-- PEXPIREAT is the first write because it is allowed when memory has run out. Redis checks the
-- memory limit only until the first write of a script.

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

local asked = {}
for i = 1, #ARGV, 2 do asked[#asked + 1] = ARGV[i] end
local places = redis.call('ZMSCORE', queue, unpack(asked))
local leases = redis.call('ZMSCORE', holders, unpack(asked))
local last, last_text = last_token()
local record = redis.call('GET', published)
local published_token = record and tonumber(string.match(record, '^(%d+) '))
redis.call('ZCARD', alive)
local _, running_till = holder()
keep(queue, now + ALIVE)
keep(alive, now + ALIVE)

local reply, records, first_end = { us, 0, 0 }, {}, nil
for i, member in ipairs(asked) do
  local token, place = tonumber(ARGV[2 * i]), tonumber(places[i] or 0)
  local expiry, state, remaining, load_till = tonumber(leases[i] or 0), 0, 0, nil
  if expiry > now then
    if last > MOST then
      -- from shared/spent_fence.lua
      -- Returns the error for a fence that is set to value: no greater token can be issued.
      local function spent_fence(value)
        local shown = string.gsub(string.sub(value, 1, 40), '%c', ' ')
        return { err = 'FENCESPENT ' .. fence .. ' is ' .. shown .. ': no greater token can be issued; delete the key' }
      end
      return spent_fence(last_text)
    end
    state, remaining, token = 1, expiry - now, last
  elseif published_token == token then
    state = 8
    records[#records + 1] = record
  elseif place > 0 then
    load_till = running_till
    if place ~= last or not running_till then load_till = invalidated_load(nil, place) end
    if load_till then
      state, token = 2, place
      if not first_end or load_till < first_end then first_end = load_till end
      redis.call('ZADD', alive, now + ALIVE, member)
    end
  end
  if place > 0 and state ~= 2 then
    redis.call('ZREM', queue, member)
    redis.call('ZREM', alive, member)
  end
  reply[#reply + 1] = state
  reply[#reply + 1] = remaining
  reply[#reply + 1] = token
end
if first_end then keep(alive, now + ALIVE) end -- again, if the key did not exist before
purge_waiters()
reply[2] = first_end and first_end - now or 0
reply[3] = redis.call('ZCARD', queue)
for _, text in ipairs(records) do reply[#reply + 1] = text end
return reply
