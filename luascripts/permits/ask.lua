-- Brings the sign of life of all waiters that one handle has on a key, and asks what became of them. It also
-- hands on the permits that dead holders and dead waiters left, so that nothing depends on a message.
-- KEYS  holders, queue, alive, limit (or fence, if fenced)
-- ARGV  1 fenced   1 = grants issue a token from fence   2 … members, all of one handle, at most 250
-- Reply now, earliest end ms, in use, limit, waiting; then for each member, in order: state (1 granted, 2 queued,
--       3 revoked, 0 none of these: enter again), remaining, token; then outcomes; then the reasons of the
--       revocations, in order
-- Cost  O(members * log n).
-- Concurrency: a leave may have granted to a member whose message was lost (state 1). A member may have been
-- dropped because its process slept, or its leave may have run (state 0). Another copy changes nothing more.
-- include permits/shared/constants, permits/shared/keys, shared/clock
local fenced = ARGV[1] == '1'
local handle = string.match(ARGV[2], '^[^.]+')
-- include permits/shared/queue
-- Reads come first, of every key that is written later: a wrong type ends the script here.
local asked = {}
for i = 2, #ARGV do asked[i - 1] = ARGV[i] end
local tickets, signs = redis.call('ZMSCORE', queue, unpack(asked)), {}
local signs_before = redis.call('ZCARD', alive)
in_use()
if fenced then redis.call('GET', fence) end
-- Expiries come first: a script that has written something may go on when the server's memory is full.
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
  if signs_before == 0 then keep(alive, now + ALIVE) end -- the key did not exist
end
purge()
advance()
if spent then return spent end -- the head cannot be granted, and nobody behind it

local limit = limit_in_force(tonumber(string.match(asked[1], '(%d+)$')))
local reply = { us, until_earliest_expiry(), in_use(), limit, redis.call('ZCARD', queue) }
local expiries, reasons = {}, {}
if #signs < 2 * #asked or #own_outcomes > 0 then -- else all of them wait, as before
  expiries = redis.call('ZMSCORE', holders, unpack(asked))
  tickets = redis.call('ZMSCORE', queue, unpack(asked))
end
for i = 1, #asked do
  local state, remaining, token = tickets[i] and 2 or 0, math.ceil(tonumber(expiries[i] or 0)) - now, 0
  if remaining > 0 then -- see held_since
    state, token = 1, current_token() or 0 -- see spent
  elseif state == 0 then
    local owner = asked[i]
    -- include shared/why_gone
    if gone then state, reasons[#reasons + 1] = 3, reason end
  end
  local at = #reply
  reply[at + 1], reply[at + 2], reply[at + 3] = state, math.max(remaining, 0), token
end
if spent then return spent end
reply = with_own_outcomes(reply)
for _, reason in ipairs(reasons) do reply[#reply + 1] = reason end
return reply
