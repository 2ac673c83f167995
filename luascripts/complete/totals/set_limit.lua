-- Written by go generate from luascripts/totals/set_limit.lua and the pieces that it includes:
-- edit those.

-- Sets the limit of a key, or the total, of a family with a total while it is in use. Waiters
-- of any key and process that now have room are granted at once; nobody loses a permit.
-- Of two settings the one that was called later counts, of any handle. A copy changes nothing
-- that came after its call.
--
-- KEYS  holders, places, queue, line, alive, ready, turns, limits
-- ARGV  1 key, '' = the total    2 limit, 0 = back to what each process has configured
--       3 handle   of the caller
--       4 number   the latest that the server's time (µs) can have been when the setting was
--                  called. Its copies have the same.
--       5 total that the caller was configured with
--
-- Reply (integers)
--   1|6|7, now µs, more   stored; void: it came 5 s after its call, or its number is that
--                         far ahead of the clock; overtaken by one that was called later
--   followed by (seq, term ms or -limit, 0) for each waiter of the same handle that
--   this call granted to or refused. more = 1: there is more to hand on. The caller sends
--   the same call again at once, which continues to grant.
--
-- Cost  O(log n), and the work of advance.
--
-- Concurrency: as in the set_limit of permits. Each key, and the total, has a number of its own
-- in alive.

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
-- from totals/shared/constants.lua
local MOST_GRANTS = 32    -- requests: the most that one call grants to
local MOST_STEPS = 125    -- waiters: the most that one call looks at
local MOST_PURGED = 64    -- members: the most expired ones that one call drops
local HELD_UP = 1000      -- ms: how long a request may hold up others that would fit
local MOST_ASIDE = 8      -- times HELD_UP: the longest time for which its key then stands aside
local LOOK = 8            -- keys: among so many a request that holds others up sees whether one would fit
local FORGOTTEN = 16000   -- ms after its end that a charge still counts
local CHARGES_KEPT = 24000 -- ms: how long turns is kept for charges: 8 times HELD_UP and FORGOTTEN
local CHARGES = 17592186044416 -- 2^44, above all tags and below all charges
local HOLDS = 1125899906842624 -- 2^50, above all charges: added to the mark of a request that holds the others up
local HARMS = 2251799813685248 -- 2^51: added instead if others would fit
-- from totals/shared/keys.lua
-- holders  sorted set: a member per held permit of any key, score = expiry (ms)
-- places   sorted set: the same members, score 0. They are in the order of their keys, so
--          that the permits of a key are counted as a range.
-- queue    sorted set: a member per waiter, score = ticket (µs)
-- line     sorted set, score 0: "<key>:<ticket>:<rest of the member>" per waiter that is
--          not parked, so that the first waiter of a key is the first of a range
-- alive    sorted set: the same waiters, score = alive until (ms). A member that is not
--          in queue is a tombstone: that request was given up, and its enter is void
--          until then.
-- ready    sorted set: the keys that have a waiter and room under their own limit,
--          score = start tag
-- turns    sorted set: "" = the virtual time; a key = its finish tag, while it is not in
--          ready; a member = since when it holds others up; ":" and ":<key>" = a charge
--          for that
-- limits   hash: a key = its limit, "" = the total, as set at run time. This is the only
--          Redis key without an expiry.
local holders, places, queue, line = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local alive, ready, turns, limits = KEYS[5], KEYS[6], KEYS[7], KEYS[8]
-- from shared/clock.lua
-- The server's time, read once per call: us in µs, now in ms.
local time = redis.call('TIME')
local us = time[1] * 1000000 + time[2]
local now = math.floor(us / 1000)
local key, limit, handle, number = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4])
local caller_total = tonumber(ARGV[5])

-- from totals/shared/use.lua
-- Counts the permits in use, in all and by key. The script has included constants, keys and
-- the clock before.
--
-- A member is <key>:<handle>.<seq>.<permits>.<ttl ms>.<limit>.<share>.<total>, so that the
-- call that hands a permit on can read the terms of the request. Permits 2 to n of a request
-- are the member followed by "+2" to "+n". A key contains no ":", because it is escaped.
--
-- Numbers are passed to commands as they are: the server writes 17 digits. Strings that are
-- made here need '%.0f', because tostring stops at 14 digits.

-- Whether the call stopped at one of its bounds, so that its caller continues at once.
local more = 0

local function key_of(member) return string.match(member, '^[^:]+') end

-- Returns the bounds of a key's members in places, and of its waiters in line.
local function range_of(key) return '[' .. key .. ':', '(' .. key .. ';' end

-- Permits in use that have not expired. From here on only a grant of this call changes the
-- number.
local in_use = redis.call('ZCOUNT', holders, '(' .. now, '+inf')

-- Permits that have expired but were not dropped yet.
local expired = {}

-- Permits in use by key, each key counted once.
local counted = {}

-- Compares places with holders, which has the same members, and rebuilds places if they
-- differ. This happens before a grant relies on places: if places was lost, each key would
-- seem to have no permits in use.
local compared = false
local function compare_places()
  if compared then return end
  compared = true
  local held = redis.call('ZCARD', holders)
  if held ~= redis.call('ZCARD', places) then
    redis.call('ZUNIONSTORE', places, 1, holders, 'WEIGHTS', 0)
    if held > 0 then redis.call('PEXPIREAT', places, redis.call('PEXPIRETIME', holders)) end
    counted = {}
  end
  if held > in_use then
    counted = {}
    expired = redis.call('ZRANGE', holders, '-inf', now, 'BYSCORE', 'LIMIT', 0, MOST_PURGED)
    if held - in_use > MOST_PURGED then more = 1 end
  end
end

local function in_use_of(key)
  if not counted[key] then
    local n = redis.call('ZLEXCOUNT', places, range_of(key))
    for _, permit in ipairs(expired) do
      if key_of(permit) == key then n = n - 1 end
    end
    counted[key] = n
  end
  return counted[key]
end

-- The limits that apply to a request: the stored ones, or else its own.
local has_stored = redis.call('HLEN', limits) > 0
local stored_total = has_stored and tonumber(redis.call('HGET', limits, '') or '')
local stored_limits = {}

local function total_in_force(own_total) return stored_total or own_total end

local function limit_in_force(key, own_limit)
  if not has_stored then return own_limit end
  if stored_limits[key] == nil then
    stored_limits[key] = tonumber(redis.call('HGET', limits, key) or '') or false
  end
  return stored_limits[key] or own_limit
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

-- Takes n permits of a key for a member until till (ms). is_first_term says that the term is
-- shorter than the TTL in the member, so that listings need the score to tell since when the
-- lease is held. write_permits writes all that a call takes together.
local taken, taken_until, in_use_before = {}, 0, in_use
local function take(key, member, n, till, is_first_term)
  taken[#taken + 1] = { member, n, is_first_term and score_of(till, till - now) or till }
  taken_until = math.max(taken_until, till)
  counted[key] = in_use_of(key) + n
  in_use = in_use + n
end

local function write_permits()
  if #taken == 0 then return end
  local to_holders, to_places = {}, {}
  local function write()
    redis.call('ZADD', holders, unpack(to_holders))
    redis.call('ZADD', places, unpack(to_places))
    to_holders, to_places = {}, {}
  end
  for _, t in ipairs(taken) do
    for i = 1, t[2] do
      local permit, at = i == 1 and t[1] or t[1] .. '+' .. i, #to_holders
      to_holders[at + 1], to_holders[at + 2] = t[3], permit
      to_places[at + 1], to_places[at + 2] = 0, permit
    end
    if #to_holders >= 4000 then write() end -- unpack has a bound
  end
  if #to_holders > 0 then write() end
  if in_use_before == 0 then -- all other leases have expired
    redis.call('PEXPIREAT', holders, taken_until)
    redis.call('PEXPIREAT', places, taken_until)
  else
    redis.call('PEXPIREAT', holders, taken_until, 'GT')
    redis.call('PEXPIREAT', places, taken_until, 'GT')
  end
  taken, in_use_before = {}, in_use
end

-- Returns the ms until the earliest lease of the family ends, 0 if none is held.
local function until_earliest_expiry()
  local first = redis.call('ZRANGE', holders, '(' .. now, '+inf', 'BYSCORE', 'LIMIT', 0, 1, 'WITHSCORES')
  return first[2] and math.ceil(first[2]) - now or 0 -- see held_since
end

-- from totals/shared/waiters.lua
-- Finds the waiters of each key, and which of them are alive. The script has included use
-- before, and has set:
--
--   handle  the handle of the caller, whose grants go into the reply

-- from shared/keep.lua
-- Makes a key live until at (ms). It never shortens the key's life.
local function keep(key, at)
  if redis.call('PEXPIREAT', key, at, 'GT') == 0 and redis.call('PTTL', key) == -1 then
    redis.call('PEXPIREAT', key, at)
  end
end

-- How many waiters the call has looked at.
local steps = 0

-- The outcomes of this call for waiters of the caller's own handle. Each has three numbers:
-- sequence number, term (ms) or minus the limit that refused it, 0.
local own_outcomes = {}

-- Appends the outcomes of the caller's own waiters to a reply.
local function with_own_outcomes(reply)
  for i = 1, #own_outcomes do reply[#reply + 1] = own_outcomes[i] end
  return reply
end

-- Tells the process of a request the outcome: granted (outcome = term) or never to be served
-- (outcome = -limit). A waiter of the caller's own handle learns it from the reply, any other
-- from a message. Nothing depends on the message: its process asks every 1.5 s.
local function tell(waiting_handle, seq, outcome)
  if waiting_handle == handle then
    own_outcomes[#own_outcomes + 1] = tonumber(seq)
    own_outcomes[#own_outcomes + 1] = outcome
    own_outcomes[#own_outcomes + 1] = 0
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
  redis.call(publish, channel, string.format('%s %.0f %d 0', seq, us, outcome))
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

-- Returns the first waiter of a key with its terms; nil if there is none, false if the call
-- has looked at enough waiters. A waiter that asks for more than the limits in force is
-- refused.
--
-- A waiter whose sign of life is overdue is parked: it leaves the line and stays in the queue.
-- Its next sign of life puts it back in its old place. If every call passed it over instead,
-- thousands of dead waiters would be too much work for any call.
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
      tell(head.handle, head.seq, -math.min(head.limit, head.total))
    else
      head.member, head.place, head.behind, head.alive_for = member, place, first[2], alive_for
      heads[key] = head
      return head
    end
  end
  more = 1
  return false
end

-- from totals/shared/turns.lua
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

-- from totals/shared/charges.lua
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
redis.call('ZCARD', queue)
redis.call('ZCARD', line)
redis.call('ZCARD', places)
local verdict = check_setting('=' .. key, number)
if verdict ~= 1 then return { verdict, us, 0 } end

note_setting('=' .. key, number)
if limit == '0' then
  redis.call('HDEL', limits, key)
else
  redis.call('HSET', limits, key, limit)
end
has_stored, stored_limits = redis.call('HLEN', limits) > 0, {}
stored_total = has_stored and tonumber(redis.call('HGET', limits, '') or '')
purge()
if key ~= '' then refresh(key) end
advance()
finish()
return with_own_outcomes({ 1, us, more })
