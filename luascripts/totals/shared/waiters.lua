-- Finds the waiters of each key, and which of them are alive. The script has included use before, and has set
-- handle, whose grants go into the reply.
-- Concurrency: a waiter may be dead, or its sign of life late: it is parked, and its next sign puts it back,
-- unless it has been dropped; then it enters again with its ticket.
-- include shared/keep, shared/outcomes
-- How many waiters the call has looked at.
local steps = 0

-- Appends the outcomes of the caller's own waiters to a reply.
local function with_own_outcomes(reply)
  for i = 1, #own_outcomes do reply[#reply + 1] = own_outcomes[i] end
  return reply
end

-- Returns the place of a waiter in line.
local function place_in_line(member, ticket)
  local key, rest = string.match(member, '^([^:]+):(.*)$')
  return string.format('%s:%016.0f:%s', key, tonumber(ticket), rest)
end

-- The first waiter of each key for which this call has found it.
local heads = {}

local end_mark -- defined in turns

-- Ends the mark of a waiter that can hold nobody up any more, if it has one.
local function unmark(member)
  local mark = redis.call('ZSCORE', turns, member)
  if mark then end_mark(member, tonumber(mark)) end
end

-- Takes a waiter out of the queue.
local function dequeue(member, place)
  redis.call('ZREM', queue, member)
  redis.call('ZREM', line, place)
  redis.call('ZREM', alive, member)
  unmark(member)
end

-- Returns the terms of a waiter's request, nil if it is of another version.
local function terms_of(key, rest)
  local waiting_handle, seq, n, ttl, limit, share, total =
    string.match(rest, '^([^.]+)%.(%d+)%.(%d+)%.(%d+)%.(%d+)%.(%d+)%.(%d+)$')
  if not waiting_handle then return nil end
  return {
    key = key, handle = waiting_handle, seq = seq, permits = tonumber(n), ttl = tonumber(ttl), share = tonumber(share),
    limit = limit_in_force(key, tonumber(limit)), total = total_in_force(tonumber(total)),
  }
end

-- Returns the first waiter of a key with its terms; nil if there is none, false if the call has looked at
-- enough waiters. A waiter that asks for more than the limits in force is refused.
-- A waiter whose sign of life is overdue is parked: it leaves the line and stays in the queue. Its next sign
-- of life puts it back in its old place. If every call passed it over instead, thousands of dead waiters
-- would be too much work for any call.
local function head_of(key)
  if heads[key] then return heads[key] end
  while steps < MOST_STEPS do
    steps = steps + 1
    local from, to = range_of(key)
    local first = redis.call('ZRANGE', line, from, to, 'BYLEX', 'LIMIT', 0, 2)
    local place = first[1]
    if not place then return nil end
    local rest = string.match(place, '^[^:]+:%d+:(.*)$') or ''
    local member = key .. ':' .. rest
    local alive_for = tonumber(redis.call('ZSCORE', alive, member) or 0) - now
    local head = terms_of(key, rest)
    if alive_for <= 0 or not head then
      dequeue(member, place)
    elseif alive_for <= OVERDUE then
      redis.call('ZREM', line, place)
      unmark(member)
    elseif head.permits > head.limit or head.permits > head.total then
      dequeue(member, place)
      tell(head.handle, head.seq, -math.min(head.limit, head.total), 0)
    else
      head.member, head.place, head.behind, head.alive_for = member, place, first[2], alive_for
      heads[key] = head
      return head
    end
  end
  more = 1
  return false
end
