-- Brings the sign of life of the waiters that one handle has on a key, and asks what became of
-- the loads that they wait for.
--
-- KEYS  holders, queue, alive, fence, value, failure, published, invalidated, schemas
-- ARGV  pairs, at most 250: member, token of the load that it waits for
--
-- Reply
--   now µs, ms until the first of their leases ends (0 = none is held), waiting
--   then for each member, in order: state, remaining ms, token
--     state 1 holds the lease; 2 waits; 3 revoked: the reply has a string, the reason;
--     0 none of these: enter again;
--     8 the load has published: the reply has a string, in the form of published
--   and then these strings.
--   Or the error FENCESPENT, as in enter, if the token of a lease is unknown.
--
-- Cost  O(members * log n).
--
-- Concurrency: the load may have published, and its message may be lost (state 8). The load
-- may have ended without a result, or its process may be dead (state 0). Another copy of this
-- member's enter may have been granted (state 1).
--
-- PEXPIREAT is the first write because it is allowed when memory has run out. Redis checks the
-- memory limit only until the first write of a script.

-- include shared/clock
-- include loads/shared/load
-- include shared/keep
-- include shared/purge_waiters

local asked = {}
for i = 1, #ARGV, 2 do asked[#asked + 1] = ARGV[i] end
local places = redis.call('ZMSCORE', queue, unpack(asked))
local leases = redis.call('ZMSCORE', holders, unpack(asked))
local last, last_text = last_token()
local record = redis.call('GET', published)
local published_token = record and tonumber(string.match(record, '^(%d+) '))
redis.call('ZCARD', alive)
local _, running_till = holder()
keep(queue, now + ALIVE)
keep(alive, now + ALIVE)

local reply, records, first_end = { us, 0, 0 }, {}, nil
for i, member in ipairs(asked) do
  local token, place = tonumber(ARGV[2 * i]), tonumber(places[i] or 0)
  local expiry, state, remaining, load_till = tonumber(leases[i] or 0), 0, 0, nil
  if expiry > now then
    if last > MOST then
      -- include shared/spent_fence
      return spent_fence(last_text)
    end
    state, remaining, token = 1, expiry - now, last
  elseif published_token == token then
    state = 8
    records[#records + 1] = record
  elseif place > 0 then
    load_till = running_till
    if place ~= last or not running_till then load_till = invalidated_load(nil, place) end
    if load_till then
      state, token = 2, place
      if not first_end or load_till < first_end then first_end = load_till end
      redis.call('ZADD', alive, now + ALIVE, member)
    end
  end
  if state == 0 then
    local owner = member
    -- include shared/why_gone
    if gone then
      state = 3
      records[#records + 1] = reason
    end
  end
  if place > 0 and state ~= 2 then
    redis.call('ZREM', queue, member)
    redis.call('ZREM', alive, member)
  end
  reply[#reply + 1] = state
  reply[#reply + 1] = remaining
  reply[#reply + 1] = token
end
if first_end then keep(alive, now + ALIVE) end -- again, if the key did not exist before
purge_waiters()
reply[2] = first_end and first_end - now or 0
reply[3] = redis.call('ZCARD', queue)
for _, text in ipairs(records) do reply[#reply + 1] = text end
return reply
