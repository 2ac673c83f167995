-- Functions for those scripts of permits that do more than their fast path. Constants, keys and the clock are
-- included before them, and the script has set handle, whose grants go into the reply, and fenced: whether grants
-- issue a token.
-- Numbers are passed to commands as they are: the server writes 17 digits. Strings that are made here need
-- '%.0f', because tostring stops at 14 digits.
-- A member is <handle>.<seq>.<permits>.<ttl ms>.<limit>, so that the call that hands a permit on can read the
-- terms of the request. Permits 2 to n of a request are the member followed by "+2" to "+n".
-- Concurrency: the head may be dead, may have left with its leave still under way, or may ask in the next call. A
-- grant takes it out of the queue in the same call, so no other call grants to it again; if it is dead, it renews
-- nothing and its first term ends soon.
-- include shared/keep, shared/purge_waiters, shared/outcomes, permits/shared/held_since
-- Whether this call stopped at one of its bounds, so that another call at once would do more.
local more = false

-- Returns all members of a request of n permits.
local function members_of(member, n)
  local all = { member }
  for i = 2, n do all[i] = member .. '+' .. i end
  return all
end

-- Returns the number of permits in use that have not expired. It is exact without a purge. It is counted
-- once; after that only a grant of this call changes it.
local counted
local function in_use()
  counted = counted or redis.call('ZCOUNT', holders, '(' .. now, '+inf')
  return counted
end

-- Returns the member of the permit that ends first and its score, or nothing. It is looked up once; after
-- that only a grant of this call changes it.
local first
local function earliest()
  first = first or redis.call('ZRANGE', holders, '(' .. now, '+inf', 'BYSCORE', 'LIMIT', 0, 1, 'WITHSCORES')
  return first
end

-- Returns the ms until the earliest lease ends, 0 if none is held.
local function until_earliest_expiry()
  local ends = earliest()[2]
  return ends and math.ceil(ends) - now or 0 -- see held_since
end

-- Returns the limit that applies to a request: the stored one, or else its own. A script stores one before.
local stored
local function limit_in_force(own_limit)
  if fenced then return own_limit end
  stored = stored or redis.call('GET', stored_limit) or ''
  return tonumber(stored) or own_limit
end

-- The error of a fence that leaves no greater token; nil: the call has met none.
local spent

-- Returns a new token, or nil and sets spent.
local function issue_token()
  -- include permits/shared/issue_token
  spent = no_token
  return token
end

-- Returns the token of the lease that is held now, or a new one if the fence was lost. Returns nil and sets
-- spent if there is neither.
local function current_token()
  if not fenced then return 0 end
  local last = tonumber(redis.call('GET', fence) or '')
  if last and last > 0 and last < 9007199254740992 then return math.floor(last) end
  return issue_token()
end

-- Makes the member the owner of n permits for term ms. is_first_term says that the term is shorter than the
-- TTL in the member, so that listings need the score to tell since when the lease is held. The token is
-- issued first: a key of a wrong type stops the script before anything else is written, and a spent fence
-- grants nothing; grant then returns nil.
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
  counted, first = before + n, nil
  return token
end

-- Drops expired permits, and waiters whose sign of life has run out.
local function purge()
  local expired = redis.call('ZCARD', holders) - in_use()
  if expired > 0 then redis.call('ZREMRANGEBYRANK', holders, 0, math.min(expired, BATCH) - 1) end
  if purge_waiters() then more = true end
end

-- Looks at count waiters from the head on. Drops those whose sign of life has run out, and parks those whose
-- sign is overdue: from then on they stand behind all others, so that no later call meets them again. Their
-- next sign of life subtracts PARKED again, which puts them back in their place. Returns false if only parked
-- waiters were there, or none.
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

-- Hands free permits to the waiters from the head of the queue on, in order. A waiter whose sign of life is
-- overdue is passed over. A waiter that asks for more than is free stops the queue, or it would starve.
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
        -- The process of the caller is alive. Any other process may be dead, so it must renew within its
        -- first term. The older its last sign of life, the shorter this term.
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

-- Appends the outcomes of the caller's own waiters to a reply, and (0, 0, 0) if another call would do more.
local function with_own_outcomes(reply)
  for i = 1, #own_outcomes do reply[#reply + 1] = own_outcomes[i] end
  if more then
    for _ = 1, 3 do reply[#reply + 1] = 0 end
  end
  return reply
end
