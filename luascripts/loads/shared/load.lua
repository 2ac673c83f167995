-- The functions that the scripts of loads share. They make sure that only one load of a cached value runs at a
-- time in all processes. The script has included the clock before.
-- A load is identified by its token, which no two loads of a key share. No script grants the lease to a waiter. A
-- waiter whose load ended without a result enters again, so that it sees a value that was stored meanwhile.
-- Concurrency: a waiter that is told may be dead, may have left, or may ask at this moment; the record in
-- published answers it then. A load that was invalidated may still renew and publish; its token tells it apart.

-- include shared/constants, loads/shared/keys
-- Returns the member that holds the lease, and when the lease ends; nil if nobody holds it.
local function holder()
  local first = redis.call('ZRANGE', holders, '(' .. now, '+inf', 'BYSCORE', 'LIMIT', 0, 1, 'WITHSCORES')
  return first[1], tonumber(first[2])
end

-- Returns the last token, and the text of the fence. What somebody's hand has set to no number, to nan or
-- below zero counts as lost: 0. Above MOST numbers have gaps, so tokens could be equal: all is MOST + 1.
local MOST = 9007199254740991 -- 2^53 - 1
local function last_token()
  local text = redis.call('GET', fence)
  local last = tonumber(text or '')
  if last and last > 0 then return math.min(math.floor(last), MOST + 1), text end
  return 0, text
end

-- Finds an invalidated load that still runs, by its member or by its token. Returns the end of its lease, its
-- token and its entry; nil if there is none.
local function invalidated_load(member, token)
  local all = redis.call('ZRANGE', invalidated, '(' .. now, '+inf', 'BYSCORE', 'LIMIT', 0, BATCH, 'WITHSCORES')
  for i = 1, #all, 2 do
    local m, t = string.match(all[i], '^(%S+) (%d+)$')
    if m and (m == member or tonumber(t) == token) then return tonumber(all[i + 1]), tonumber(t), all[i] end
  end
end

-- Returns the range of scores of the waiters of a load. If the fence was lost, waiters of the running load
-- have newer tokens than the load.
local function scores_of(token, running)
  local from = string.format('%.0f', token)
  return from, running and '+inf' or from
end

local function count_waiters(token, running) return redis.call('ZCOUNT', queue, scores_of(token, running)) end

-- Takes waiters of a load out of the queue and sends each of their processes one message. Returns how many
-- are left. Nothing depends on the messages.
local function tell(token, running, record)
  local from, to = scores_of(token, running)
  local all = redis.call('ZRANGE', queue, from, to, 'BYSCORE', 'LIMIT', 0, BATCH, 'WITHSCORES')
  if #all == 0 then return 0 end
  local told = {}
  for i = 1, #all, 2 do
    told[#told + 1] = all[i]
    local receiver, seq = string.match(all[i], '^([^.]+)%.(%d+)')
    if receiver then
      -- include shared/inbox
      redis.call(publish, channel, string.format('%s %.0f 0 %.0f ', seq, us, tonumber(all[i + 1])) .. record)
    end
  end
  redis.call('ZREM', queue, unpack(told))
  redis.call('ZREM', alive, unpack(told))
  if #told < BATCH then return 0 end
  return redis.call('ZCOUNT', queue, from, to)
end
