-- Takes permits of a key in a family with a total, or a place in the queue. Idempotent by member: a call that
-- is sent again answers as the first one did.
-- KEYS  as in keys
-- ARGV  1 member   2 permits   3 ttl (ms)   4 limit   5 total   6 void_from
--       7 wait  if nothing is free: '' = answer "busy", otherwise queue, with "<ticket> <max> <max total>": the
--               place to take (µs), 0 = behind everybody; the most that may wait for the key and for all keys, 0 =
--               no bound
-- Reply 1, now, remaining, more   granted
--       2|3|4|5, now, earliest end ms, more, in use, limit, waiting, total in use, total, until ms, competing
--         queued; busy; more permits than a limit; queue full. In use, limit and waiting are of the key; earliest
--         end is of the family; until is the time until the first of the leases ends that are in the way; competing
--         is how many keys compete for the total
--       6|7, now, 0, 0   void; given up before. Then outcomes
-- Cost  if nobody waits and there is room: TIME, EXISTS, ZCARD and ZADD and PEXPIREAT of holders and places,
--       ZLEXCOUNT. Otherwise O(log n), and the work of advance.
-- Concurrency: another copy of this call may run before this one, after it, or never. A leave of the same
-- member may have run before it (tombstone). A call of any other handle may have granted to the member since it
-- was queued. Redis may have evicted any of the keys, so what a script finds may be inconsistent.
-- include permits/shared/constants, totals/shared/constants, totals/shared/keys, shared/clock
local member, permits, ttl = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
local own_limit, caller_total, void_from = tonumber(ARGV[4]), tonumber(ARGV[5]), tonumber(ARGV[6])
if void_from > 0 and us >= void_from then return { 6, us, 0, 0 } end
local key = string.match(member, '^[^:]+')

if permits == 1 then
  local others = redis.call('EXISTS', queue, line, alive, limits)
  if others == 0 or (others == 1 and redis.call('EXISTS', limits) == 1) then
    local limit, total = own_limit, caller_total
    if others == 1 then
      local stored = redis.call('HMGET', limits, key, '')
      limit, total = tonumber(stored[1] or '') or limit, tonumber(stored[2] or '') or total
    end
    local held = redis.call('ZCARD', holders)
    if held < total and redis.call('ZCARD', places) == held
      and redis.call('ZLEXCOUNT', places, '[' .. key .. ':', '(' .. key .. ';') < limit
      and redis.call('ZADD', holders, 'NX', now + ttl, member) == 1 then
      redis.call('ZADD', places, 0, member)
      if held == 0 then
        redis.call('PEXPIREAT', holders, now + ttl)
        redis.call('PEXPIREAT', places, now + ttl)
      else
        redis.call('PEXPIREAT', holders, now + ttl, 'GT')
        redis.call('PEXPIREAT', places, now + ttl, 'GT')
      end
      return { 1, us, ttl, 0 }
    end
  end
end

local handle = string.match(member, ':([^.]+)')
-- include totals/shared/use, totals/shared/waiters, totals/shared/turns
-- Reads come first, of every key that is written later: a wrong type ends the script here.
local from, to = range_of(key)
local expiry = math.ceil(tonumber(redis.call('ZSCORE', holders, member) or 0)) -- see held_since
local ticket = redis.call('ZSCORE', queue, member)
local sign = redis.call('ZSCORE', alive, member)
local waiting = redis.call('ZLEXCOUNT', line, from, to)
in_use_of(key)
local limit, total = limit_in_force(key, own_limit), total_in_force(caller_total)
if expiry > now then return { 1, us, expiry - now, 0 } end
if sign and not ticket then
  local owner = string.match(member, ':(.*)$') or ''
  -- include shared/why_gone
  return gone or { 7, us, 0, 0 }
end

-- Returns the ms until the first lease ends of those that are in the way: leases of the key if its own limit
-- is the obstacle, otherwise leases of the family. If the key has more than 64 permits in use, the first
-- lease of the family is used instead, which ends no later.
local function until_earliest_in_the_way()
  if in_use_of(key) + permits > limit then
    local own = redis.call('ZRANGE', places, from, to, 'BYLEX', 'LIMIT', 0, 65)
    if #own > 0 and #own <= 64 then
      local first
      for _, score in ipairs(redis.call('ZMSCORE', holders, unpack(own))) do
        local remains = math.ceil(tonumber(score or 0)) - now
        if remains > 0 and (not first or remains < first) then first = remains end
      end
      if first then return first end
    end
  end
  return until_earliest_expiry()
end

local function answer(code)
  finish()
  local earliest = until_earliest_expiry()
  if steps > 0 then waiting = redis.call('ZLEXCOUNT', line, from, to) end
  return with_own_outcomes({
    code, us, earliest, more, in_use_of(key), limit, waiting,
    in_use, total, code == 2 and earliest or until_earliest_in_the_way(), competing,
  })
end

if permits > limit or permits > total then
  if ticket then
    dequeue(member, place_in_line(member, ticket))
    waiting = waiting - 1
    purge()
    refresh(key)
    advance()
  end
  return answer(4)
end

-- A request is granted here only if no other waits before it, neither for the key nor for the total. The
-- first write is one that a memory limit may refuse, and nothing was purged before it. So a refused enter changes nothing.
local function fits()
  compare_places()
  return in_use + permits <= total and in_use_of(key) + permits <= limit
end
local function grant()
  take(key, member, permits, now + ttl)
  write_permits()
  purge()
  if competing > 0 then advance() end
  finish()
  return with_own_outcomes({ 1, us, ttl, more })
end
if not ticket and waiting == 0 and competing == 0 and fits() then return grant() end

local given_ticket, max_waiters, max_total = string.match(ARGV[7], '^(%d+) (%d+) (%d+)$')
if not given_ticket then
  if not ticket and fits() then
    -- There is room, and the requests that wait for it may be dead.
    purge()
    advance()
    if competing == 0 and redis.call('ZLEXCOUNT', line, from, to) == 0 and fits() then return grant() end
  end
  return answer(3)
end

given_ticket, max_waiters, max_total = tonumber(given_ticket), tonumber(max_waiters), tonumber(max_total)
if not ticket and given_ticket == 0 then
  -- Only living waiters count, so the dead are dropped before a request is refused.
  local function full()
    return (max_waiters > 0 and redis.call('ZLEXCOUNT', line, from, to) >= max_waiters)
      or (max_total > 0 and redis.call('ZCARD', queue) >= max_total)
  end
  -- Also drop the dead waiters of this key. purge drops the dead of all keys, the longest dead first, and may
  -- not reach them.
  local function drop_dead_of_key()
    local first, members = redis.call('ZRANGE', line, from, to, 'BYLEX', 'LIMIT', 0, MOST_STEPS), {}
    for i, place in ipairs(first) do
      members[i] = key .. ':' .. (string.match(place, '^[^:]+:%d+:(.*)$') or '')
    end
    local dropped = false
    for i, ends in ipairs(#members > 0 and redis.call('ZMSCORE', alive, unpack(members)) or {}) do
      if tonumber(ends or 0) <= now then
        dequeue(members[i], first[i])
        dropped = true
      end
    end
    if dropped then
      heads[key] = nil
      refresh(key)
    end
  end
  if full() then
    purge()
    drop_dead_of_key()
    advance()
    waiting = redis.call('ZLEXCOUNT', line, from, to)
    if full() then return answer(5) end
  end
end

local is_first = waiting == 0 or ticket
if not ticket then
  ticket = given_ticket
  if ticket == 0 then
    -- Behind the last waiter, even if the clock went back.
    local last_ticket = redis.call('ZRANGE', queue, -1, -1, 'WITHSCORES')[2]
    ticket = math.max(us, (tonumber(last_ticket or 0)) + 1)
  end
  redis.call('ZADD', queue, ticket, member)
end
waiting = waiting + redis.call('ZADD', line, 0, place_in_line(member, ticket))
heads[key] = nil
redis.call('ZADD', alive, now + ALIVE, member)
-- Set the expiry of all four, even of those that this call did not write. In a family with short waits no
-- other call may do it.
redis.call('PEXPIREAT', queue, now + ALIVE)
redis.call('PEXPIREAT', line, now + ALIVE)
redis.call('PEXPIREAT', ready, now + ALIVE)
redis.call('PEXPIREAT', turns, now + turns_kept)
keep(alive, now + ALIVE)
if is_first then -- otherwise it waits behind its own key, and changes nothing for others
  purge()
  refresh(key)
  advance()
end

-- The caller's own grant is the answer, not one of the outcomes that follow it.
local seq = #own_outcomes > 0 and tonumber(string.match(member, ':[^.]+%.(%d+)'))
for i = 1, #own_outcomes, 3 do
  if own_outcomes[i] == seq then
    finish()
    local reply = { 1, us, own_outcomes[i + 1], more }
    for j = 1, #own_outcomes do
      if j < i or j > i + 2 then reply[#reply + 1] = own_outcomes[j] end
    end
    return reply
  end
end
if is_first and fits() then note_harm() end
return answer(2)
