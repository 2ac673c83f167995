-- Counts the permits in use, in all and by key. The script has included constants, keys and the clock before.
-- A member is <key>:<handle>.<seq>.<permits>.<ttl ms>.<limit>.<share>.<total>. All else, and numbers, are as in the
-- queue of permits. A key contains no ":", because it is escaped.
-- Concurrency: permits may have expired that no call has dropped yet; they are counted as free. Their owners'
-- renewals find them expired, too.

-- Whether the call stopped at one of its bounds, so that its caller continues at once.
local more = 0

local function key_of(member) return string.match(member, '^[^:]+') end

-- Returns the bounds of a key's members in places, and of its waiters in line.
local function range_of(key) return '[' .. key .. ':', '(' .. key .. ';' end

-- Permits in use that have not expired. From here on only a grant of this call changes the number.
local in_use = redis.call('ZCOUNT', holders, '(' .. now, '+inf')

-- Permits that have expired but were not dropped yet, by key.
local expired = {}

-- Permits in use by key, each key counted once.
local counted = {}

-- Compares places with holders, which has the same members, and rebuilds places if they differ. This happens
-- before a grant relies on places: if places was lost, each key would seem to have no permits in use.
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
    for _, permit in ipairs(redis.call('ZRANGE', holders, '-inf', now, 'BYSCORE', 'LIMIT', 0, MOST_EXPIRED)) do
      expired[key_of(permit)] = (expired[key_of(permit)] or 0) + 1
    end
    if held - in_use > MOST_PURGED then more = 1 end
  end
end

local function in_use_of(key)
  if not counted[key] then
    counted[key] = redis.call('ZLEXCOUNT', places, range_of(key)) - (expired[key] or 0)
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
-- include permits/shared/held_since
-- Takes n permits of a key for a member until till (ms). is_first_term says that the term is shorter than the
-- TTL in the member, so that listings need the score to tell since when the lease is held. write_permits
-- writes all that a call takes together.
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
