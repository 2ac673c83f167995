-- Brings the sign of life of the waiters that one handle has in a family with a total, for any of its keys, and
-- asks what became of them. It restores their entries in line and ready if those were lost, and hands on the
-- permits that dead holders and dead waiters left. So nothing depends on a message, nor on any single Redis key.
-- Without members it continues the work of an earlier call that stopped at a bound ("more").
-- KEYS  as in keys
-- ARGV  1 handle   2 total that the caller was configured with   3 … members, all of that handle, at most 250
-- Reply now, earliest end ms, more, total in use, total, competing keys; then for each member, in order: state
--       (as in the ask of permits), remaining, and of its key in use, limit, waiting; then outcomes; then the
--       reasons of the revocations, in order
-- Cost  O(members * log n).
-- Concurrency: a leave of one of the members may have run, or be under way. A member whose leave has run is in
-- no set, and is not restored.
-- include permits/shared/constants, totals/shared/constants, totals/shared/keys, shared/clock
local handle, caller_total = ARGV[1], tonumber(ARGV[2])
local asked = {}
for i = 3, #ARGV do asked[i - 2] = ARGV[i] end
-- include totals/shared/use, totals/shared/waiters, totals/shared/turns
-- Reads come first, of every key that is written later: a wrong type ends the script here.
local tickets = #asked > 0 and redis.call('ZMSCORE', queue, unpack(asked)) or {}
for _, set in ipairs({ queue, line, alive, places }) do redis.call('ZCARD', set) end
keep(alive, now + ALIVE) -- first, because it is allowed when memory has run out
if #asked > 0 then
  redis.call('PEXPIREAT', queue, now + ALIVE)
  redis.call('PEXPIREAT', line, now + ALIVE)
  redis.call('PEXPIREAT', ready, now + ALIVE)
  redis.call('PEXPIREAT', turns, now + turns_kept)
end

local signs, in_line, queued_keys, known, refused = {}, {}, {}, {}, {}
for i, member in ipairs(asked) do
  if tickets[i] then
    local key = key_of(member)
    local terms = has_stored and terms_of(key, string.sub(member, #key + 2))
    if terms and terms.permits > math.min(terms.limit, terms.total) then
      -- A limit was lowered since. The waiter is told at once, not when its turn comes.
      dequeue(member, place_in_line(member, tickets[i]))
      tell(handle, terms.seq, -math.min(terms.limit, terms.total), 0)
      refused[key] = true
    else
      signs[#signs + 1] = now + ALIVE
      signs[#signs + 1] = member
      in_line[#in_line + 1] = 0
      in_line[#in_line + 1] = place_in_line(member, tickets[i])
    end
    if not known[key] then
      known[key] = true
      queued_keys[#queued_keys + 1] = key
    end
  end
end
if #signs > 0 then
  redis.call('ZADD', alive, unpack(signs))
  keep(alive, now + ALIVE) -- again, if the key did not exist before
  redis.call('ZADD', line, unpack(in_line))
  redis.call('PEXPIREAT', line, now + ALIVE)
end
purge()
if #queued_keys > 0 then
  for i, tag in ipairs(redis.call('ZMSCORE', ready, unpack(queued_keys))) do
    if not tag or refused[queued_keys[i]] then refresh(queued_keys[i]) end
  end
end
advance()
finish()

local total = total_in_force(caller_total)
local reply = { us, until_earliest_expiry(), more, in_use, total, competing }
if #asked == 0 then return with_own_outcomes(reply) end
local expiries, reasons = redis.call('ZMSCORE', holders, unpack(asked)), {}
tickets = redis.call('ZMSCORE', queue, unpack(asked))
local of_key = {}
for i, member in ipairs(asked) do
  local key = key_of(member)
  if not of_key[key] then
    local from, to = range_of(key)
    local own_limit = tonumber(string.match(member, '%.(%d+)%.%d+%.%d+$') or 0)
    of_key[key] = { in_use_of(key), limit_in_force(key, own_limit), redis.call('ZLEXCOUNT', line, from, to) }
  end
  local remains = math.ceil(tonumber(expiries[i] or 0)) - now -- see held_since
  local at = #reply
  if remains > 0 then
    reply[at + 1], reply[at + 2] = 1, remains
  else
    reply[at + 1], reply[at + 2] = tickets[i] and 2 or 0, 0
    if not tickets[i] then
      local owner = string.sub(member, #key + 2)
      -- include shared/why_gone
      if gone then reply[at + 1], reasons[#reasons + 1] = 3, reason end
    end
  end
  reply[at + 3], reply[at + 4], reply[at + 5] = of_key[key][1], of_key[key][2], of_key[key][3]
end
reply = with_own_outcomes(reply)
for _, reason in ipairs(reasons) do reply[#reply + 1] = reason end
return reply
