-- flight_ask: the sign of life of those whom one handle has waiting on a key, and
-- the question what became of the loads that they wait for.
--
-- KEYS  holders, queue, alive, fence, value, failure, landed, aside
-- ARGV  1 member, 2 token of the load that it waits for, 3 member, …: at most
--       250 pairs
--
-- Reply
--   now µs, ms until the first of their leases ends (0 = none is held), waiting
--   then for each member, in order: state, remaining ms, token
--     state 1 holds the lease, 2 waits, 0 neither: enter again;
--     8 the load has landed: a string, as in landed, is in the reply
--   and the strings.
--
-- Cost  O(members * log n).
-- PEXPIREAT is the first write: it is allowed where memory has run out, and the
-- checks of the memory limit end with a script's first write.

local time = redis.call('TIME')
local us = time[1] * 1000000 + time[2]
local now = math.floor(us / 1000)
-- include flight

local asked = {}
for i = 1, #ARGV, 2 do asked[#asked + 1] = ARGV[i] end
local places = redis.call('ZMSCORE', Q, unpack(asked))
local leases = redis.call('ZMSCORE', H, unpack(asked))
local last = tonumber(redis.call('GET', X) or '') or 0
local record = redis.call('GET', L)
local landed = record and tonumber(string.match(record, '^(%d+) '))
redis.call('ZCARD', A)
local _, till = holder()
keep(Q, now + ALIVE)
keep(A, now + ALIVE)

local reply, strings, first = { us, 0, 0 }, {}, nil
for i, m in ipairs(asked) do
  local token, place = tonumber(ARGV[2 * i]), tonumber(places[i] or 0)
  local lease, state, left, alive = tonumber(leases[i] or 0), 0, 0, nil
  if lease > now then
    state, left, token = 1, lease - now, last
  elseif landed == token then
    state = 8
    strings[#strings + 1] = record
  elseif place > 0 then
    alive = till
    if place ~= last or not till then alive = aside(nil, place) end
    if alive then
      state, token = 2, place
      if not first or alive < first then first = alive end
      redis.call('ZADD', A, now + ALIVE, m)
    end
  end
  if place > 0 and state ~= 2 then
    redis.call('ZREM', Q, m)
    redis.call('ZREM', A, m)
  end
  reply[#reply + 1] = state
  reply[#reply + 1] = left
  reply[#reply + 1] = token
end
if first then keep(A, now + ALIVE) end -- again, where the key was gone
purge()
reply[2] = first and first - now or 0
reply[3] = redis.call('ZCARD', Q)
for _, s in ipairs(strings) do reply[#reply + 1] = s end
return reply
