-- Decides whose turn it is, by start-time fair queueing over the keys. The script has included
-- use and waiters before, and has set:
--
--   caller_total  the total that the caller was configured with
--
-- A key that has a waiter and room under its own limit competes: it is in ready, with a start
-- tag. Permits are granted in the order of start tags. A grant of n permits moves the key's
-- tag by n/share, so that keys advance in proportion to their shares. A key that begins to
-- compete starts at the virtual time, or at the tag at which it stopped if that is later. So
-- an idle key earns no credit, and a key that was held back by its own limit gains nothing.

-- How many keys compete.
local competing = redis.call('ZCARD', ready)

-- The virtual time. If it was lost, the smallest tag replaces it.
local stored = redis.call('ZMSCORE', turns, '', ':')
local virtual, family_charge = tonumber(stored[1] or ''), tonumber(stored[2] or '')
local virtual_before = virtual
if not virtual then
  virtual = competing > 0 and tonumber(redis.call('ZRANGE', ready, 0, 0, 'WITHSCORES')[2]) or 0
end

-- Whether this call may have created ready and turns, which then have no expiry yet. If they
-- existed before, the last sign of life has set their expiry.
local made_ready, made_turns = competing == 0, not virtual_before

-- How long turns lives on without a sign of life.
local turns_kept = family_charge and CHARGES_KEPT or ALIVE

local function begin_to_compete(key)
  local finish_tag = tonumber(redis.call('ZSCORE', turns, key) or 0)
  redis.call('ZADD', ready, math.max(virtual, finish_tag), key)
  competing = competing + 1
end

-- Takes a key out of ready. Its tag is kept if it is ahead of the virtual time, so that the
-- key cannot come back sooner than if it had continued to compete.
local function stop_competing(key, tag)
  redis.call('ZREM', ready, key)
  competing = competing - 1
  if competing == 0 then made_ready = true end
  if tag > virtual then redis.call('ZADD', turns, tag, key) end
end

-- Updates in ready whether a key competes. To be called whenever the key's permits in use, its
-- limit or its first waiter may have changed.
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

-- A request that does not fit holds the others up, so that smaller requests do not starve it.
-- If it could do so without a bound, requests for the whole total could stop the family: one
-- that waits beside a long lease, or many that give up in time and come again. So time held up
-- in vain, while a request that would fit waits, is charged to the key and to the family.
--
--   mark    in turns under the member of the request that holds the others up: HOLDS + since
--           when (ms), HARMS + since when if a request that would fit waits. There is at most
--           one mark.
--   charge  in turns under ":<key>", and under ":" for the family: till*32 + times while it
--           fades; it has faded at till (ms). It is -(till*32 + times) while the key stands
--           aside until till. times is how often it stood aside before. FORGOTTEN after till
--           the charge has no more meaning.
--
-- A key whose charge reaches HELD_UP stands aside: its requests are granted at their turns if
-- they fit then, and hold nobody up. If the charge of the family reaches HELD_UP, nobody holds
-- the others up for that long. Otherwise many keys could do in turn what one may not.
--
-- A charge under ":" exists whenever there is any other, or there was one until a moment ago.
-- If the clock went back, times that lie too far ahead do not count.

-- Returns the charge that a key or the family has at the end of a mark, in ms.
local function charge_of(score, since)
  local before = score and score > 0 and math.floor(score / 32) - since or 0
  return now - since + math.max(0, math.min(HELD_UP, before))
end

-- Returns until when a key stands aside, or the family rests; nil if it does not.
local function aside_until(score, longest)
  local till = score and score < 0 and math.floor(-score / 32) or 0
  if till > now and till <= now + longest then return till end
end

-- Returns how often a key has stood aside, as far as that is not forgotten.
local function times_of(score)
  local n = math.abs(score or 0)
  return math.floor(n / 32) + FORGOTTEN > now and n % 32 or 0
end

-- Whether a request that would fit was held up when this call began, and still waits as far as
-- is known.
local harmed = false

-- Ends a mark: its request was granted, left, died, or holds nobody up any more.
function end_mark(member, mark)
  redis.call('ZREM', turns, member)
  if mark < HARMS then return end
  harmed = true
  local since, name = math.min(mark - HARMS, now), ':' .. key_of(member)
  local score = tonumber(redis.call('ZSCORE', turns, name) or '')
  local level, times = charge_of(score, since), times_of(score)
  if level < HELD_UP then
    score = (now + level) * 32 + times
  else
    score = -((now + HELD_UP * math.min(2 ^ times, MOST_ASIDE)) * 32 + math.min(times + 1, 31))
  end
  level = charge_of(family_charge, since)
  family_charge = level < HELD_UP and (now + level) * 32 or -(now + HELD_UP) * 32
  redis.call('ZADD', turns, score, name, family_charge, ':')
  turns_kept, made_turns = CHARGES_KEPT, true
end

-- Returns whether one of LOOK keys behind the first has a request that would fit. If there are
-- more keys, each call looks at others, so that requests for much cannot hide the rest.
local function another_fits()
  local from = 1 + now % math.max(1, competing - LOOK)
  for _, key in ipairs(redis.call('ZRANGE', ready, from, from + LOOK - 1)) do
    local head = head_of(key)
    if head and in_use + head.permits <= head.total and in_use_of(key) + head.permits <= head.limit then return true end
  end
  return false
end

-- Called for a request that fits and has to wait: another one holds it up.
local function note_harm()
  local marked = redis.call('ZRANGE', turns, HOLDS, '(' .. string.format('%.0f', HARMS), 'BYSCORE', 'LIMIT', 0, 1)
  if marked[1] then redis.call('ZADD', turns, HARMS + now, marked[1]) end
end

-- Puts a key in front of the one with this tag, which is the first, if it may compete. Returns
-- whether it did.
local in_front = false -- once a call, because 2^-20 is too small a step for the largest tags
local function put_in_front(key, tag)
  local head = head_of(key)
  if not head or in_use_of(key) + head.permits > head.limit then return false end
  competing = competing + redis.call('ZADD', ready, tag - 2 ^ -20, key)
  in_front = true
  return true
end

-- Lets another key go in front of a key that is about to hold the others up: the one that has
-- the mark, so that newcomers do not take it over and over, else the one whose time aside
-- ended first. Returns whether there is one.
local function lets_pass(before, tag)
  if in_front then return false end
  local marked = redis.call('ZRANGE', turns, HOLDS, '+inf', 'BYSCORE', 'LIMIT', 0, 1, 'WITHSCORES')
  if marked[1] then
    local head = head_of(key_of(marked[1]))
    if head and head.member == marked[1] and put_in_front(head.key, tag) then return true end
    unmark(marked[1])
  end
  local from, to = -(now - FORGOTTEN) * 32, -(now * 32 + 31)
  local ended = redis.call('ZRANGE', turns, string.format('%.0f', from), string.format('%.0f', to), 'BYSCORE', 'REV', 'LIMIT', 0, 4, 'WITHSCORES')
  for i = 1, #ended, 2 do
    local key = string.sub(ended[i], 2)
    if key ~= '' then
      redis.call('ZADD', turns, -tonumber(ended[i + 1]), ended[i]) -- it has had its chance
      if key == before then return false end
      if put_in_front(key, tag) then return true end
    end
  end
  return false
end

-- Called when the request whose turn it is asks for more than is free. Returns true if another
-- request is to be looked at: this one stands aside, or has let another one in front of it.
-- Otherwise nothing is to be granted now.
local function passes(head, tag)
  if in_use >= math.max(head.total, total_in_force(caller_total)) then
    return false -- nothing is free, so it holds nobody up
  end
  local name = ':' .. head.key
  local scores = redis.call('ZMSCORE', turns, head.member, name)
  local mark, charge = tonumber(scores[1] or ''), tonumber(scores[2] or '')
  local rest = aside_until(family_charge, HELD_UP)
  if rest or aside_until(charge, HELD_UP * MOST_ASIDE) then
    if mark then
      end_mark(head.member, mark)
      return passes(head, tag)
    end
    if not aside_until(charge, HELD_UP * MOST_ASIDE) then
      redis.call('ZADD', turns, -(rest * 32 + times_of(charge)), name) -- it stands aside until the family has rested
    end
    stop_competing(head.key, tag)
    return true
  end
  if not mark then
    if lets_pass(head.key, tag) then return true end
    -- The mark of an earlier request may have ended, and may have been one too many.
    charge = tonumber(redis.call('ZSCORE', turns, name) or '')
    if aside_until(family_charge, HELD_UP) or aside_until(charge, HELD_UP * MOST_ASIDE) then return passes(head, tag) end
  end

  local harms = mark and mark >= HARMS
  local since = mark and math.min(now, mark - (harms and HARMS or HOLDS)) or now
  if not harms and (harmed or another_fits()) then harms, since = true, now end
  local score = (harms and HARMS or HOLDS) + since
  if harms and math.max(charge_of(charge, since), charge_of(family_charge, since)) >= HELD_UP then
    end_mark(head.member, score)
    return passes(head, tag) -- now it stands aside
  end
  if score ~= mark then redis.call('ZADD', turns, score, head.member) end
  return false
end

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

-- Grants to the first waiter of a key, whose turn it is. Returns whether it did. It does not
-- if queue was lost, or if line has an older place of a waiter that waits no more.
local function serve(head, tag)
  local key = head.key
  heads[key] = nil
  redis.call('ZREM', line, head.place)
  if redis.call('ZREM', queue, head.member) == 0 then return false end
  harmed = false -- it may have been this one
  served[#served + 1] = head.member
  -- The process of the caller is alive. Any other process may be dead, so it must renew within
  -- its first term. The older its last sign of life, the shorter this term.
  local term = head.handle == handle and head.ttl or math.min(head.ttl, PROBATION, head.alive_for - SILENCE)
  take(key, head.member, head.permits, now + term, term < head.ttl)
  tell(head.handle, head.seq, term)

  -- If the virtual time only followed the start tags, keys that come just once would always be
  -- ahead of a key that keeps coming. So it also advances with the permits granted. The finish
  -- tag bounds that: a request for many permits would otherwise move it past the others.
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

-- Returns whether the first waiter of a key finds all permits in use. Its own total may be
-- above the caller's if no total is stored.
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

-- Drops expired permits, after which their keys may compete. The permits are read again here:
-- the caller's own may have been among the expired ones, and this call may have granted it
-- again.
local function purge_permits()
  compare_places()
  if #expired == 0 then return end
  expired = {}
  local permits = redis.call('ZRANGE', holders, '-inf', now, 'BYSCORE', 'LIMIT', 0, MOST_PURGED)
  if #permits == 0 then return end
  redis.call('ZREM', holders, unpack(permits))
  redis.call('ZREM', places, unpack(permits))
  refresh_keys(permits)
end

-- Drops waiters whose sign of life has run out, and finish tags that the virtual time has
-- passed: these have no meaning any more.
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
