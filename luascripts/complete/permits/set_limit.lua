-- Written by go generate from luascripts/permits/set_limit.lua and the pieces that it includes:
-- edit those.

-- Sets the limit of a semaphore's key while it is in use. Waiters of any process that now have
-- room are granted at once; nobody loses a permit. Of two settings the one that was called
-- later counts, of any handle. A copy changes nothing that came after its call.
--
-- KEYS  holders, queue, alive, limit
-- ARGV  1 limit, 0 = back to the limit that each process has configured
--       2 handle   of the caller
--       3 number   the latest that the server's time (µs) can have been when the setting was
--                  called. Its copies have the same.
--
-- Reply (integers)
--   1|6|7, now µs, 0   stored; void: it came 5 s after its call, or its number is that far
--                      ahead of the clock; overtaken by a setting that was called later
--   followed by (seq, term ms or -limit, 0) for each waiter of the same handle that this
--   call granted to or refused, and by (0, 0, 0) if the same call, sent at once, would
--   grant more.
--
-- Cost  O(log n), and the work of advance.
--
-- Concurrency: another copy of this call, or another setting, may have run before it. Whichever
-- of them was called last has left its number in alive. The number is at least the server's
-- time at the call, and its caller returns only once the server's clock has passed it. So the
-- number of a setting that is called after that is greater. What is left in alive is never
-- ahead of the clock: a number that was taken too high does not outrank settings that are
-- called after it arrived. If the clock went back since, what is left does not count. Of equal
-- numbers the last to arrive wins.

-- from permits/shared/constants.lua
-- from shared/constants.lua
local BATCH = 250         -- members: the most that one call purges, parks or tells
local ALIVE = 4500        -- ms: how long a sign of life keeps a place in the queue
local PROBATION = 2000    -- ms: first term of a grant whose owner may be dead
local OVERDUE = 2500      -- ms of ALIVE left: a waiter with this or less (its sign is 2 s old) gets no grant
local SILENCE = 1600      -- ms of ALIVE left at which a first term ends: 2.9 s after the last sign
local FEW = 10            -- waiters at the head that are looked at first if the head is overdue
local GRANTS = 64         -- the most that one call grants or refuses, because each is a message
local PARKED = 4503599627370496 -- 2^52: added to the ticket in the score of a parked waiter
-- from permits/shared/keys.lua
-- holders       sorted set: a member per held permit, score = expiry (ms)
-- queue         sorted set: a member per waiter, score = ticket (µs), plus PARKED while
--               the waiter's sign of life is overdue
-- alive         sorted set: the same waiters, score = alive until (ms). A member that is
--               not in queue is a tombstone: that request was given up, and its enter
--               is void until then.
-- fence         string, if fenced: the last fencing token
-- stored_limit  string, if not fenced: a limit that was set at run time
local holders, queue, alive, fence = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local stored_limit = fence -- a fenced lease has one permit, and no limit to store
-- from shared/clock.lua
-- The server's time, read once per call: us in µs, now in ms.
local time = redis.call('TIME')
local us = time[1] * 1000000 + time[2]
local now = math.floor(us / 1000)
local limit, handle, number = ARGV[1], ARGV[2], tonumber(ARGV[3])
local fenced = false

-- from permits/shared/queue.lua
-- Functions for those scripts of permits that do more than their fast path. Constants, keys and
-- the clock are included before them, and the script has set:
--
--   handle  the handle of the caller, whose grants go into the reply
--   fenced  whether grants issue a token
--
-- Numbers are passed to commands as they are: the server writes 17 digits. Strings that are
-- made here need '%.0f', because tostring stops at 14 digits.
--
-- A member is <handle>.<seq>.<permits>.<ttl ms>.<limit>, so that the call that hands a permit
-- on can read the terms of the request. Permits 2 to n of a request are the member followed by
-- "+2" to "+n".

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

-- from permits/shared/held_since.lua
-- The score of a permit is its expiry (ms), rounded up. Its fraction, in parts of 1/4096,
-- tells listings how long before the expiry the lease was granted: part k stands for e^(k *
-- 0.004) - 1 seconds, which is within 0.2 %. If there is no fraction, the lease was granted
-- for the TTL in the member and never renewed, so the TTL says it.
local function score_of(till, granted_before)
  local part = math.floor(math.log(1 + granted_before / 1000) / 0.004 + 0.5)
  return till - 1 + math.max(1, math.min(4095, part)) / 4096
end

-- The outcomes of this call for waiters of the caller's own handle. Each has three numbers:
-- sequence number, term (ms) or minus the limit that refused it, token.
local own_outcomes = {}

-- Whether this call stopped at one of its bounds, so that another call at once would do more.
local more = false

-- Returns all members of a request of n permits.
local function members_of(member, n)
  local all = { member }
  for i = 2, n do all[i] = member .. '+' .. i end
  return all
end

-- Returns the number of permits in use that have not expired. It is exact without a purge. It
-- is counted once; after that only a grant of this call changes it.
local counted
local function in_use()
  counted = counted or redis.call('ZCOUNT', holders, '(' .. now, '+inf')
  return counted
end

-- Returns the ms until the earliest lease ends, 0 if none is held.
local function until_earliest_expiry()
  local first = redis.call('ZRANGE', holders, '(' .. now, '+inf', 'BYSCORE', 'LIMIT', 0, 1, 'WITHSCORES')
  return first[2] and math.ceil(first[2]) - now or 0 -- see held_since
end

-- Returns the limit that applies to a request: the stored one, or else its own.
local function limit_in_force(own_limit)
  if fenced then return own_limit end
  return tonumber(redis.call('GET', stored_limit) or '') or own_limit
end

-- The error of a fence that leaves no greater token; nil: the call has met none.
local spent

-- Returns a new token, or nil and sets spent.
local function issue_token()
  -- from permits/shared/issue_token.lua
  -- Issues a token. The clock makes it rise even if the fence was lost, and the fence makes it
  -- rise even if the clock went back. This is the first write of a grant: a fence of a wrong
  -- type ends the script with nothing done.
  --
  -- Somebody's hand may have set the fence. What is no number, nan, or negative counts as lost.
  -- Above 2^53 - 1 numbers have gaps, so the next token could equal the last one. Then token is
  -- nil, no_token is the error to answer with, and the value is put back: otherwise the next call
  -- would issue a token from the clock, which is lower.
  local FENCE_KEPT = 86400000 -- ms: how long the last token is kept
  local token, no_token = us, nil
  local before = redis.call('SET', fence, us, 'PX', FENCE_KEPT, 'GET')
  local last = tonumber(before or 0) or 0
  if last >= us then
    token = math.floor(last) + 1
    if token > 9007199254740991 then
      -- from shared/spent_fence.lua
      -- Returns the error for a fence that is set to value: no greater token can be issued.
      local function spent_fence(value)
        local shown = string.gsub(string.sub(value, 1, 40), '%c', ' ')
        return { err = 'FENCESPENT ' .. fence .. ' is ' .. shown .. ': no greater token can be issued; delete the key' }
      end
      token, no_token = nil, spent_fence(before)
    end
    redis.call('SET', fence, token or before, 'PX', FENCE_KEPT)
  end
  spent = no_token
  return token
end

-- Returns the token of the lease that is held now, or a new one if the fence was lost. Returns
-- nil and sets spent if there is neither.
local function current_token()
  if not fenced then return 0 end
  local last = tonumber(redis.call('GET', fence) or '')
  if last and last > 0 and last < 9007199254740992 then return math.floor(last) end
  return issue_token()
end

-- Makes the member the owner of n permits for term ms. is_first_term says that the term is
-- shorter than the TTL in the member, so that listings need the score to tell since when the
-- lease is held. The token is issued first: a key of a wrong type stops the script before
-- anything else is written, and a spent fence grants nothing; grant then returns nil.
local function grant(member, n, term, is_first_term)
  local token, before, args = 0, in_use(), {}
  if fenced then
    token = issue_token()
    if not token then return nil end
  end
  local score = now + term
  if is_first_term and not fenced then score = score_of(score, term) end
  for _, permit in ipairs(members_of(member, n)) do
    args[#args + 1] = score
    args[#args + 1] = permit
  end
  redis.call('ZADD', holders, unpack(args))
  if before == 0 then -- all other leases in the key have expired
    redis.call('PEXPIREAT', holders, now + term)
  else
    keep(holders, now + term)
  end
  counted = before + n
  return token
end

-- Drops expired permits, and waiters whose sign of life has run out.
local function purge()
  local expired = redis.call('ZCARD', holders) - in_use()
  if expired > 0 then redis.call('ZREMRANGEBYRANK', holders, 0, math.min(expired, BATCH) - 1) end
  if purge_waiters() then more = true end
end

-- Takes a waiter out of the queue.
local function dequeue(member)
  redis.call('ZREM', queue, member)
  redis.call('ZREM', alive, member)
end

-- Tells the process of a request the outcome: granted (outcome = term) or never to be served
-- (outcome = -limit). A waiter of the caller's own handle learns it from the reply, any other
-- from a message. Nothing depends on the message: its process asks every 1.5 s.
local function tell(waiting_handle, seq, outcome, token)
  if waiting_handle == handle then
    own_outcomes[#own_outcomes + 1] = tonumber(seq)
    own_outcomes[#own_outcomes + 1] = outcome
    own_outcomes[#own_outcomes + 1] = token
    return
  end
  local receiver = waiting_handle
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
  redis.call(publish, channel, string.format('%s %.0f %d %.0f', seq, us, outcome, token))
end

-- Looks at count waiters from the head on. Drops those whose sign of life has run out, and
-- parks those whose sign is overdue: from then on they stand behind all others, so that no
-- later call meets them again. Their next sign of life subtracts PARKED again, which puts them
-- back in their place. Returns false if only parked waiters were there, or none.
local function clear_head(count)
  local heads = redis.call('ZRANGE', queue, 0, count - 1, 'WITHSCORES')
  local waiters, tickets = {}, {}
  for i = 1, #heads, 2 do
    local ticket = tonumber(heads[i + 1])
    if ticket >= PARKED then break end
    waiters[#waiters + 1] = heads[i]
    tickets[#tickets + 1] = ticket
  end
  if #waiters == 0 then return false end
  local signs, gone, parked = redis.call('ZMSCORE', alive, unpack(waiters)), {}, {}
  for i, member in ipairs(waiters) do
    local alive_for = tonumber(signs[i] or 0) - now
    if alive_for <= 0 then
      gone[#gone + 1] = member
    elseif alive_for <= OVERDUE then
      parked[#parked + 1] = tickets[i] + PARKED
      parked[#parked + 1] = member
    end
  end
  if #gone > 0 then
    redis.call('ZREM', queue, unpack(gone))
    redis.call('ZREM', alive, unpack(gone))
  end
  if #parked > 0 then redis.call('ZADD', queue, 'XX', unpack(parked)) end
  return true
end

-- Hands free permits to the waiters from the head of the queue on, in order. A waiter whose
-- sign of life is overdue is passed over. A waiter that asks for more than is free stops the
-- queue, so that it is not starved.
local function advance()
  local looked_at, done = 0, 0
  while true do
    local member = redis.call('ZRANGE', queue, 0, 0)[1]
    if not member then return end
    local alive_for = tonumber(redis.call('ZSCORE', alive, member) or 0) - now
    if alive_for <= OVERDUE then
      if looked_at == BATCH then
        more = true
        return
      end
      local count = looked_at == 0 and FEW or BATCH - FEW
      if not clear_head(count) then return end
      looked_at = looked_at == 0 and FEW or BATCH
    else
      local waiting_handle, seq, n, ttl, own_limit = string.match(member, '^([^.]+)%.(%d+)%.(%d+)%.(%d+)%.(%d+)$')
      n, ttl = tonumber(n), tonumber(ttl)
      local limit = limit_in_force(tonumber(own_limit))
      if waiting_handle and n <= limit and in_use() + n > limit then return end
      if done == GRANTS then
        more = true
        return
      end
      done = done + 1
      if not waiting_handle then -- of another version: its terms cannot be read
        dequeue(member)
      elseif n > limit then
        dequeue(member)
        tell(waiting_handle, seq, -limit, 0)
      else
        -- The process of the caller is alive. Any other process may be dead, so it must renew
        -- within its first term. The older its last sign of life, the shorter this term.
        local term = waiting_handle == handle and ttl or math.min(ttl, PROBATION, alive_for - SILENCE)
        local token = grant(member, n, term, term < ttl)
        if not token then return end -- its next ask tells it why
        dequeue(member)
        tell(waiting_handle, seq, term, token)
        if fenced then return end -- there is one permit
      end
    end
  end
end

-- Appends the outcomes of the caller's own waiters to a reply, and (0, 0, 0) if another call
-- at once would do more.
local function with_own_outcomes(reply)
  for i = 1, #own_outcomes do reply[#reply + 1] = own_outcomes[i] end
  if more then
    for _ = 1, 3 do reply[#reply + 1] = 0 end
  end
  return reply
end

-- from shared/check_setting.lua
-- Of two settings the one with the higher number counts. The number of the last one is in alive,
-- under a name that no request has, for as long as an earlier one may arrive: until VOID_AFTER
-- later, which is its score (ms, in thousandths). The script has included keep before.
local VOID_AFTER = 5000000 -- µs from its call on that a setting may arrive

-- Returns 1 if the setting counts, 6 if it is void, 7 if it was overtaken.
local function check_setting(name, number)
  if us >= number + VOID_AFTER or number > us + VOID_AFTER then return 6 end
  local last = tonumber(redis.call('ZSCORE', alive, name) or '')
  last = last and math.floor(last * 1000 + 0.5) - VOID_AFTER
  if last and number < last and last <= us then return 7 end
  return 1
end

local function note_setting(name, number)
  local score = (math.min(number, us) + VOID_AFTER) / 1000
  redis.call('ZADD', alive, score, name)
  keep(alive, math.ceil(score))
end

-- Reads come first, of every key that is written later: a wrong type ends the script here.
redis.call('GET', stored_limit)
redis.call('ZCARD', holders)
redis.call('ZCARD', queue)
local verdict = check_setting('=', number)
if verdict ~= 1 then return { verdict, us, 0 } end

note_setting('=', number)
if limit == '0' then
  redis.call('DEL', stored_limit)
else
  redis.call('SET', stored_limit, limit)
end
purge()
advance()
return with_own_outcomes({ 1, us, 0 })
