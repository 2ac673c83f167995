-- Decides whose turn it is, by start-time fair queueing over the keys. The script has included use and
-- waiters before, and has set:
--   caller_total  the total that the caller was configured with
-- A key that has a waiter and room under its own limit competes: it is in ready, with a start tag. Permits
-- are granted in the order of start tags. A grant of n permits moves the key's tag by n/share, so that keys
-- advance in proportion to their shares. A key that begins to compete starts at the virtual time, or at the
-- tag at which it stopped if that is later. So an idle key earns no credit, and a key that was held back by
-- its own limit gains nothing.
-- Concurrency: the first waiter of a key may be dead, have left, or ask in the next call. A grant takes it
-- out of queue and line in the same call, so that no other call grants to it again.

-- How many keys compete.
local competing = redis.call('ZCARD', ready)

-- The virtual time. If it was lost, the smallest tag replaces it.
local stored = redis.call('ZMSCORE', turns, '', ':')
local virtual, family_charge = tonumber(stored[1] or ''), tonumber(stored[2] or '')
local virtual_before = virtual
if not virtual then
  virtual = competing > 0 and tonumber(redis.call('ZRANGE', ready, 0, 0, 'WITHSCORES')[2]) or 0
end

-- Whether this call may have created ready and turns, which then have no expiry yet. If they existed before,
-- the last sign of life has set their expiry.
local made_ready, made_turns = competing == 0, not virtual_before

-- How long turns lives on without a sign of life.
local turns_kept = family_charge and CHARGES_KEPT or ALIVE

local function begin_to_compete(key)
  local finish_tag = tonumber(redis.call('ZSCORE', turns, key) or 0)
  redis.call('ZADD', ready, math.max(virtual, finish_tag), key)
  competing = competing + 1
end

-- Takes a key out of ready. Its tag is kept if it is ahead of the virtual time, so that the key cannot come
-- back sooner than if it had continued to compete.
local function stop_competing(key, tag)
  redis.call('ZREM', ready, key)
  competing = competing - 1
  if competing == 0 then made_ready = true end
  if tag > virtual then redis.call('ZADD', turns, tag, key) end
end

-- Updates in ready whether a key competes. To be called whenever the key's permits in use, its limit or its
-- first waiter may have changed.
local function refresh(key)
  local tag = redis.call('ZSCORE', ready, key)
  local head = head_of(key)
  if head == false then return end
  local fits = head and in_use_of(key) + head.permits <= head.limit
  if fits and not tag then
    begin_to_compete(key)
  elseif tag and not fits then
    stop_competing(key, tonumber(tag))
  end
end

-- Refreshes the keys of members, each once.
local function refresh_keys(members)
  local refreshed = {}
  for _, member in ipairs(members) do
    local key = key_of(member)
    if not refreshed[key] then
      refreshed[key] = true
      refresh(key)
    end
  end
end
-- include totals/shared/charges
-- Waiters that this call has granted to. Their remaining entries are dropped in one go.
local served = {}
local function drop_served()
  if #served == 0 then return end
  redis.call('ZREM', alive, unpack(served))
  for i, mark in ipairs(redis.call('ZMSCORE', turns, unpack(served))) do
    if mark then end_mark(served[i], tonumber(mark)) end
  end
  served = {}
end

-- Lets keys that stand aside compete if their requests fit now: what fits is never kept back.
local brought_back = false
local function bring_back()
  if brought_back or not family_charge then return end
  brought_back = true
  for _, name in ipairs(redis.call('ZRANGE', turns, '(0', '-inf', 'BYSCORE', 'REV', 'LIMIT', 0, 8)) do
    local key = string.sub(name, 2)
    if key ~= '' and not redis.call('ZSCORE', ready, key) then
      local head = head_of(key)
      if head and in_use + head.permits <= head.total and in_use_of(key) + head.permits <= head.limit then
        begin_to_compete(key)
      end
    end
  end
end

-- Called once no key competes. Without charges the tags have no more meaning and are dropped.
local function drop_turns()
  drop_served() -- one of them may have a mark
  if not family_charge and (virtual_before or virtual > 0) then
    redis.call('DEL', turns)
    virtual, virtual_before, made_turns = 0, nil, true
  end
end

-- Grants to the first waiter of a key, whose turn it is. Returns whether it did. It does not if queue was
-- lost, or if line has an older place of a waiter that waits no more.
local function serve(head, tag)
  local key = head.key
  heads[key] = nil
  redis.call('ZREM', line, head.place)
  if redis.call('ZREM', queue, head.member) == 0 then return false end
  harmed = false -- it may have been this one
  served[#served + 1] = head.member
  -- The process of the caller is alive. Any other process may be dead, so it must renew within its first
  -- term. The older its last sign of life, the shorter this term.
  local term = head.handle == handle and head.ttl or math.min(head.ttl, PROBATION, head.alive_for - SILENCE)
  take(key, head.member, head.permits, now + term, term < head.ttl)
  tell(head.handle, head.seq, term, 0)

  -- If the virtual time only followed the start tags, keys that come just once would always be ahead of a key
  -- that keeps coming. So it also advances with the permits granted. The finish tag bounds that: a request
  -- for many permits would otherwise move it past the others.
  local finish_tag = tag + head.permits / head.share
  virtual = math.max(virtual, tag, math.min(virtual + head.permits / (head.share * competing), finish_tag))
  local behind = head.behind and terms_of(key, string.match(head.behind, '^[^:]+:%d+:(.*)$') or '')
  if behind and in_use_of(key) + behind.permits <= behind.limit then
    redis.call('ZADD', ready, finish_tag, key)
  else
    stop_competing(key, finish_tag)
  end
  return true
end

-- Returns whether the first waiter of a key finds all permits in use. Its own total may differ from the caller's.
local function finds_all_in_use(key)
  if in_use < total_in_force(caller_total) then return false end
  if stored_total then return true end
  if heads[key] then return in_use >= heads[key].total end
  local from, to = range_of(key)
  local place = redis.call('ZRANGE', line, from, to, 'BYLEX', 'LIMIT', 0, 1)[1]
  return place and in_use >= tonumber(string.match(place, '%.(%d+)$') or math.huge)
end

-- Hands free permits to the waiters, in the order of their keys' tags.
local function advance()
  local grants = 0
  bring_back()
  while true do
    if grants >= MOST_GRANTS or steps >= MOST_STEPS then
      more = 1
      return
    end
    local first = redis.call('ZRANGE', ready, 0, 0, 'WITHSCORES')
    local key, tag = first[1], tonumber(first[2] or 0)
    if not key then
      drop_turns()
      return
    elseif finds_all_in_use(key) then
      return
    else
      local head = head_of(key)
      if head == false then return end
      if not head or in_use_of(key) + head.permits > head.limit then
        stop_competing(key, tag)
      elseif in_use + head.permits <= head.total then
        if serve(head, tag) then grants = grants + 1 end
      elseif not passes(head, tag) then
        return
      end
    end
  end
end

-- Drops expired permits, after which their keys may compete. The permits are read again here: the caller's
-- own may have been among the expired ones, and this call may have granted it again.
local function purge_permits()
  compare_places()
  if not next(expired) then return end
  local permits = redis.call('ZRANGE', holders, '-inf', now, 'BYSCORE', 'LIMIT', 0, MOST_PURGED)
  if #permits == 0 then return end
  for _, permit in ipairs(permits) do expired[key_of(permit)] = (expired[key_of(permit)] or 0) - 1 end
  redis.call('ZREM', holders, unpack(permits))
  redis.call('ZREM', places, unpack(permits))
  refresh_keys(permits)
end

-- Drops waiters whose sign of life has run out, and finish tags that the virtual time has passed: they have no meaning.
local function purge_waiters()
  if virtual_before then
    local passed = redis.call('ZRANGE', turns, 0, string.format('(%.17g', virtual), 'BYSCORE', 'LIMIT', 0, MOST_PURGED)
    if #passed > 0 then redis.call('ZREM', turns, unpack(passed)) end
  end
  if family_charge then
    local old = string.format('%.0f', (now - FORGOTTEN) * 32)
    for _, range in ipairs({ { '(' .. string.format('%.0f', CHARGES), old }, { '-' .. old, '(0' } }) do
      local forgotten = redis.call('ZRANGE', turns, range[1], range[2], 'BYSCORE', 'LIMIT', 0, MOST_PURGED)
      if #forgotten > 0 then redis.call('ZREM', turns, unpack(forgotten)) end
    end
    family_charge = tonumber(redis.call('ZSCORE', turns, ':') or '')
  end
  local gone = redis.call('ZRANGE', alive, '-inf', now, 'BYSCORE', 'LIMIT', 0, MOST_PURGED)
  if #gone == 0 then return end
  local waiters = {}
  for i, ticket in ipairs(redis.call('ZMSCORE', queue, unpack(gone))) do
    if ticket then
      redis.call('ZREM', line, place_in_line(gone[i], ticket))
      waiters[#waiters + 1] = gone[i]
    end
  end
  redis.call('ZREM', queue, unpack(gone))
  redis.call('ZREM', alive, unpack(gone))
  for i, mark in ipairs(redis.call('ZMSCORE', turns, unpack(gone))) do
    if mark then end_mark(gone[i], tonumber(mark)) end
  end
  heads = {}
  refresh_keys(waiters)
end

local function purge()
  purge_permits()
  purge_waiters()
end

-- Writes the permits that the call has granted, and the virtual time.
local function finish()
  write_permits()
  drop_served()
  if (competing > 0 or family_charge) and virtual ~= (virtual_before or 0) then redis.call('ZADD', turns, virtual, '') end
  if made_ready then redis.call('PEXPIREAT', ready, now + ALIVE) end
  if made_turns then redis.call('PEXPIREAT', turns, now + turns_kept) end
end
