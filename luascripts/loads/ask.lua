-- Brings the sign of life of the waiters that one handle has on a key, and asks what became of their loads.
-- KEYS  as in keys
-- ARGV  pairs, at most 250: member, token of the load that it waits for
-- Reply now, ms until the first of their leases ends (0 = none is held), waiting; then for each member, in order:
--       state, remaining, token; then the strings of states 3 and 8, in order
--         state 1 holds the lease; 2 waits; 3 revoked, with the reason; 8 the load has published, with published;
--         0 none of these: enter again. FENCESPENT: the token of a lease is unknown
-- Cost  O(members * log n).
-- Concurrency: the load may have published, and its message may be lost (state 8). The load may have ended
-- without a result, or its process may be dead (state 0). Another copy of this member's enter may have been
-- granted (state 1).
-- include shared/clock, loads/shared/load, shared/keep, shared/purge_waiters
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
    if gone then state, records[#records + 1] = 3, reason end
  end
  if place > 0 and state ~= 2 then dequeue(member) end
  local at = #reply
  reply[at + 1], reply[at + 2], reply[at + 3] = state, remaining, token
end
if first_end then keep(alive, now + ALIVE) end -- again, if the key did not exist before
purge_waiters()
reply[2] = first_end and first_end - now or 0
reply[3] = redis.call('ZCARD', queue)
for _, text in ipairs(records) do reply[#reply + 1] = text end
return reply
