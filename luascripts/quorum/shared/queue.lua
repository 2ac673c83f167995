-- Functions that give the vote of this server. The script has included the constants, the keys, the clock and
-- process before, and has set caller, the member that the call is for.
-- Concurrency: the head may be dead, may have left with its leave still under way, or may enter in the next
-- call. A message is a hint: its process confirms the vote by an enter, and other votes end soon.
-- include shared/keep, shared/purge_waiters
-- The error of a fence that leaves no greater token; nil: the call has met none.
local spent

local function ticket_of(member)
  return tonumber(string.match(member, '^[^.]+%.%d+%.1%.%d+%.1%.(%d+)%.%d+$'))
end

-- Reports whether a member comes after another one, with a place. Members of one ticket have the order of the queue.
local function comes_after(member, other, place)
  local ticket = ticket_of(member) or 0
  return place and (place < ticket or place == ticket and other < member)
end

-- Sets the fence, and notes the highest token of the family. This is the first write of a vote: a fence of a
-- wrong type ends the script with nothing done.
local function set_fence(token)
  redis.call('SET', fence, token, 'PX', FENCE_KEPT)
  if token > top then
    top = token
    redis.call('HSET', born, 'top', top)
  end
end

-- Returns the last token. What somebody's hand has set to no number, nan, or less than 0 counts as lost.
local function last_token()
  local last = tonumber(redis.call('GET', fence) or '')
  return last and last >= 0 and last or nil
end

-- Issues a token with which the vote is given: lead, which is the same on all servers, or the one after the
-- last. With neither, the clock makes it rise. Returns nil and sets spent if there is no greater token.
local function issue_token(lead)
  local last = last_token()
  if lead > us + LEAD then lead = us end
  local token = math.max(math.floor(math.max(last or us, floor)) + 1, lead)
  if token > 9007199254740991 then
    -- include shared/spent_fence
    spent = spent_fence(redis.call('GET', fence) or string.format('%.0f', floor))
    return nil
  end
  set_fence(token)
  return token
end

-- Returns the member that has the vote, and until when; nil if nobody has it.
local function holder()
  local all = redis.call('ZRANGE', holders, '(' .. now, '+inf', 'BYSCORE', 'LIMIT', 0, 1, 'WITHSCORES')
  return all[1], tonumber(all[2] or 0)
end

-- Gives the vote to a member. The vote is free.
local function give(member, term)
  redis.call('DEL', holders)
  redis.call('ZADD', holders, now + term, member)
  redis.call('PEXPIREAT', holders, now + term)
end

-- Gives a member a place in the queue for a time (ms), in which its process counts as alive.
local function enqueue(member, place, time)
  redis.call('ZADD', queue, place, member)
  redis.call('ZADD', alive, now + time, member)
  keep(queue, now + time)
  keep(alive, now + time)
end

-- Returns the first waiter whose sign of life is not overdue, its place, and for how long its sign counts. It
-- looks at BATCH waiters at most, and drops those whose sign has run out.
local function first_waiter()
  local from, count, looked_at = 0, FEW, 0
  while looked_at < BATCH do
    local heads = redis.call('ZRANGE', queue, from, from + count - 1)
    if #heads == 0 then return nil end
    looked_at = looked_at + #heads
    local signs = redis.call('ZMSCORE', alive, unpack(heads))
    for i, member in ipairs(heads) do
      local alive_for = tonumber(signs[i] or 0) - now
      if alive_for <= 0 or not ticket_of(member) then
        dequeue(member)
        from = from - 1
      elseif alive_for > OVERDUE then
        return member, tonumber(redis.call('ZSCORE', queue, member)), alive_for
      end
    end
    from, count = from + #heads, BATCH - FEW
  end
end

-- Tells the process of a member to look here.
local function hint(member)
  local receiver, seq = string.match(member, '^([^.]+)%.(%d+)')
  -- include shared/inbox
  redis.call(publish, channel, seq)
end

-- Gives the vote to the first waiter, if it is free, and returns that member, its term and token.
local function advance(lead)
  if not votes or holder() then return end
  local member, _, alive_for = first_waiter()
  if not member then return end
  -- The process of the caller is alive. Any other process may be dead, so it must confirm within its first
  -- term. The older its last sign of life, the shorter this term.
  local whole = tonumber(string.match(member, '^[^.]+%.%d+%.1%.(%d+)'))
  local term = string.match(member, '^[^.]+') == string.match(caller, '^[^.]+') and whole or math.min(whole, PROBATION, alive_for - SILENCE)
  local token = issue_token(lead or 0)
  if not token then return end
  give(member, term)
  dequeue(member)
  if member ~= caller then hint(member) end
  return member, term, token
end
