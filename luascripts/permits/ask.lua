-- Brings the sign of life of all waiters that one handle has on a key, and asks what became of
-- them. It also hands on the permits that dead holders and dead waiters left, so that nothing
-- depends on a message.
--
-- KEYS  holders, queue, alive, limit (or fence, if fenced)
-- ARGV  1 fenced   1 = grants issue a token from fence
--       2 … members, all of one handle, at most 250
--
-- Reply (integers)
--   now µs, earliest end ms, in use, limit, waiting
--   then for each member, in order: state, remaining ms, token
--     state 1 granted, 2 queued, 3 revoked, 0 none of these: enter again
--   followed by (seq, term ms or -limit, token) for each waiter of the same handle that
--   this call granted to or refused, and by (0, 0, 0) if this call stopped at a bound:
--   sent again at once, it continues. Last come the reasons of the revocations, in order.
--   Or the error FENCESPENT: see issue_token.
--
-- Cost  O(members * log n).
--
-- Concurrency: a leave may have granted to a member whose message was lost (state 1). A member
-- may have been dropped because its process slept, or its leave may have run (state 0).
-- Another copy of this call changes nothing more.
--
-- PEXPIREAT is the first write because it is allowed when memory has run out. Redis checks the
-- memory limit only until the first write of a script.

-- include permits/shared/constants
-- include permits/shared/keys
-- include shared/clock
local fenced = ARGV[1] == '1'
local handle = string.match(ARGV[2], '^[^.]+')
-- include permits/shared/queue

-- Reads come first, of every key that is written later: a wrong type ends the script here.
local asked = {}
for i = 2, #ARGV do asked[i - 1] = ARGV[i] end
local tickets, signs = redis.call('ZMSCORE', queue, unpack(asked)), {}
redis.call('ZCARD', alive)
redis.call('ZCARD', holders)
if fenced then redis.call('GET', fence) end
keep(queue, now + ALIVE)
keep(alive, now + ALIVE)
for i, member in ipairs(asked) do
  if tickets[i] then
    signs[#signs + 1] = now + ALIVE
    signs[#signs + 1] = member
    local ticket = tickets[i] - PARKED
    if ticket >= 0 then redis.call('ZADD', queue, 'XX', ticket, member) end -- it was parked
  end
end
if #signs > 0 then
  redis.call('ZADD', alive, unpack(signs))
  keep(alive, now + ALIVE) -- again, if the key did not exist before
end
purge()
advance()
if spent then return spent end -- the head cannot be granted, and nobody behind it

local limit = limit_in_force(tonumber(string.match(asked[1], '(%d+)$')))
local reply = { us, until_earliest_expiry(), in_use(), limit, redis.call('ZCARD', queue) }
local expiries, reasons = redis.call('ZMSCORE', holders, unpack(asked)), {}
tickets = redis.call('ZMSCORE', queue, unpack(asked))
for i = 1, #asked do
  local remaining = math.ceil(tonumber(expiries[i] or 0)) - now -- see held_since
  if remaining > 0 then
    reply[#reply + 1] = 1
    reply[#reply + 1] = remaining
    reply[#reply + 1] = current_token() or 0 -- see spent
  else
    local state = tickets[i] and 2 or 0
    if state == 0 then
      local owner = asked[i]
      -- include shared/why_gone
      if gone then
        state = 3
        reasons[#reasons + 1] = reason
      end
    end
    reply[#reply + 1] = state
    reply[#reply + 1] = 0
    reply[#reply + 1] = 0
  end
end
if spent then return spent end
reply = with_own_outcomes(reply)
for _, reason in ipairs(reasons) do reply[#reply + 1] = reason end
return reply
