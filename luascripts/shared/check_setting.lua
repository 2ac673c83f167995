-- Of two settings the one with the higher number counts. The number of the last one is in alive, under a name
-- that no request has, for as long as an earlier one may arrive: until VOID_AFTER later, which is its score
-- (ms, in thousandths). The script has included keep before.
-- Concurrency: an earlier setting of any handle may arrive later, and a copy of this one twice: a copy has
-- the same number, counts again, and changes nothing.
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
