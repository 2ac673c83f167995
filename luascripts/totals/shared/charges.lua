-- A request that does not fit holds the others up, so that smaller requests do not starve it. If it could do so
-- without a bound, requests for the whole total could stop the family: one that waits beside a long lease, or many
-- that give up in time and come again. So time held up in vain, while a request that would fit waits, is charged
-- to the key and to the family.
--   mark    in turns under the member of the request that holds the others up: HOLDS + since when (ms), HARMS +
--           since when if a request that would fit waits. There is at most one mark.
--   charge  in turns under ":<key>", and under ":" for the family: till*32 + times while it fades; it has faded at
--           till (ms). It is -(till*32 + times) while the key stands aside until till. times is how often it stood
--           aside before. FORGOTTEN after till the charge has no more meaning.
-- A key whose charge reaches HELD_UP stands aside: its requests are granted at their turns if they fit then, and
-- hold nobody up. If the charge of the family reaches HELD_UP, nobody holds the others up for that long. Otherwise
-- many keys could do in turn what one may not.
-- A charge under ":" exists whenever there is any other, or there was one until a moment ago. If the clock went
-- back, times that lie too far ahead do not count.
-- Concurrency: the request with the mark may be granted, leave, die or be revoked in any call; each of these ends
-- the mark in the same call. If the mark's member was lost in another way, the next request that holds the others
-- up replaces it.

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

-- Whether a request that would fit was held up when this call began, and still waits as far as is known.
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

-- Returns whether one of LOOK keys behind the first has a request that would fit. If there are more keys,
-- each call looks at others, so that requests for much cannot hide the rest.
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

-- Puts a key in front of the one with this tag, the first one, if it may compete. Returns whether it did.
local in_front = false -- once a call, because 2^-20 is too small a step for the largest tags
local function put_in_front(key, tag)
  local head = head_of(key)
  if not head or in_use_of(key) + head.permits > head.limit then return false end
  competing = competing + redis.call('ZADD', ready, tag - 2 ^ -20, key)
  in_front = true
  return true
end

-- Lets another key go in front of a key that is about to hold the others up: the one that has the mark, so
-- that newcomers do not take it over and over, else the one whose time aside ended first. Reports whether.
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

-- Called when the request whose turn it is asks for more than is free. Returns true if another request is to
-- be looked at: this one stands aside, or has let another one in front of it. Otherwise nothing is granted.
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
