-- The work of an enter. See permits/enter for the arguments and the replies. The script has set keepers: the
-- key of the register, if the caller may keep what it is granted, or nil.
-- Concurrency: another copy of the call may run before this one, after it, or never. A leave of the same
-- member may have run before it (tombstone). A leave of another handle may have granted to it since.
-- include permits/shared/keys, shared/clock
local member, ttl, void_from = ARGV[1], tonumber(ARGV[3]), tonumber(ARGV[5])
local fenced = ARGV[2] == '0'
if void_from > 0 and us >= void_from then return { 6, us, 0, 0, 0, 0 } end

local bare -- nobody waits, and no limit is stored
if fenced then
  if redis.call('EXISTS', holders, queue, alive) == 0 then
    -- The lease is free, so no copy of this call can have taken it.
    -- include permits/shared/register, permits/shared/issue_token
    if not token then return no_token end
    redis.call('ZADD', holders, now + ttl, member)
    redis.call('PEXPIREAT', holders, now + ttl)
    return { 1, us, ttl, token, 0, added }
  end
elseif ARGV[2] == '1' and redis.call('EXISTS', queue, alive, stored_limit) == 0 then
  bare = true
  local held = redis.call('ZCARD', holders)
  -- A copy of a call that was granted must not register: a recall may have come since.
  if held < tonumber(ARGV[4]) and not (keepers and redis.call('ZSCORE', holders, member)) then
    -- include permits/shared/register
    if redis.call('ZADD', holders, 'NX', now + ttl, member) == 1 then
      if held == 0 then
        redis.call('PEXPIREAT', holders, now + ttl)
      else
        redis.call('PEXPIREAT', holders, now + ttl, 'GT')
      end
      return { 1, us, ttl, 0, 0, added }
    end
  end
end

local handle = string.match(member, '^[^.]+')
-- include permits/shared/constants, permits/shared/queue
if bare then stored = '' end

-- Reads come first, of every key that is written later: a wrong type ends the script here.
local permits, limit = fenced and 1 or tonumber(ARGV[2]), limit_in_force(tonumber(ARGV[4]))
if fenced then redis.call('GET', fence) end
local expiry = math.ceil(tonumber(redis.call('ZSCORE', holders, member) or 0)) -- see held_since
local queued = redis.call('ZSCORE', queue, member)
local marks = redis.call('ZMSCORE', alive, member, '^', '^?')
local sign, recalled_until, coming_until = marks[1], tonumber(marks[2] or ''), tonumber(marks[3] or '')
if expiry > now then
  local token = current_token()
  return token and { 1, us, expiry - now, token, 1, 1 } or spent
end
if sign and not queued then
  local owner = member
  -- include shared/why_gone
  return gone or { 7, us, 0, 0, 0, 0 }
end

-- Reports whether a waiter that still counts as alive is in the queue. If that would take too long to find
-- out, the answer is yes: it only sends the caller to the end of the queue.
local function has_live_waiter()
  if redis.call('ZCARD', queue) == 0 then return false end
  local live = redis.call('ZRANGE', alive, '(' .. now, '+inf', 'BYSCORE', 'LIMIT', 0, BATCH)
  for _, waiter in ipairs(live) do
    if redis.call('ZSCORE', queue, waiter) then return true end
  end
  return #live == BATCH
end
-- include permits/shared/recall
local function answer(code)
  return with_own_outcomes({ code, us, until_earliest_expiry(), in_use(), limit, redis.call('ZCARD', queue) })
end

if permits > limit then
  if queued then
    dequeue(member)
    purge()
    advance()
  end
  return answer(4)
end

-- The first write is one that a memory limit may refuse, and nothing was purged before it: so nothing changes.
if not queued and in_use() + permits <= limit and not has_live_waiter() then
  local recalled = recalled_until and recalled_until > now and recalled_until <= now + RECALLED
  if recalled then keepers = nil end
  -- include permits/shared/register
  local token = grant(member, permits, ttl)
  if not token then return spent end
  purge()
  return { 1, us, ttl, token, recalled and 1 or 0, added }
end
local ticket, max_waiters = string.match(ARGV[6], '^(%d+) (%d+)$')
local tries = not ticket
if tries then
  local most = tonumber(string.match(ARGV[6], '^%?(%d+)$') or '')
  if not (recall() and most or queued) then return answer(3) end
  ticket, max_waiters = 0, most
end

if not queued then
  ticket = tonumber(ticket)
  if ticket == 0 then
    -- Behind the last waiter, even if the clock went back. Parked waiters come last in the queue, in the
    -- order of their tickets.
    local last_ticket = tonumber(redis.call('ZRANGE', queue, -1, -1, 'WITHSCORES')[2] or 0)
    if last_ticket >= PARKED then
      local unparked = redis.call('ZRANGE', queue, '(' .. string.format('%.0f', PARKED), '-inf', 'BYSCORE', 'REV', 'LIMIT', 0, 1, 'WITHSCORES')[2]
      last_ticket = math.max(last_ticket - PARKED, tonumber(unparked or 0))
    end
    ticket = math.max(us, last_ticket + 1)
  end
  redis.call('ZADD', queue, ticket, member)
elseif queued - PARKED >= 0 then -- this call is its sign of life
  redis.call('ZADD', queue, 'XX', queued - PARKED, member)
end
redis.call('ZADD', alive, now + ALIVE, member)
keep(queue, now + ALIVE)
keep(alive, now + ALIVE)
purge()
advance()
if spent then -- no waiter can be granted
  dequeue(member)
  return spent
end

-- The caller's own grant is the answer, not one of the outcomes that follow it.
local seq = #own_outcomes > 0 and tonumber(string.match(member, '^[^.]+%.(%d+)'))
for i = 1, #own_outcomes, 3 do
  if own_outcomes[i] == seq then
    local reply = { 1, us, own_outcomes[i + 1], own_outcomes[i + 2], 1, 0 }
    for _ = 1, 3 do table.remove(own_outcomes, i) end
    return with_own_outcomes(reply)
  end
end
if not tries then recall() end
max_waiters = tonumber(max_waiters)
if not queued and max_waiters > 0 and redis.call('ZCARD', queue) > max_waiters then
  dequeue(member)
  return answer(tries and 3 or 5)
end
return answer(2)
