-- Asks for the vote of this server, or for a place in the queue, and is a sign of life, a renewal and a
-- confirmation in one. Idempotent by member: a call that is sent again answers with the same token.
-- KEYS  as in keys
-- ARGV  1 member   2 checks  1 = find out which process this is (see process.lua)   3 ttl (ms) of the family
--       4 void_from   5 term (ms) of the vote
--       6 mode  wait = take a place in the queue; try = do not; renew = only prolong a vote; heal = take the vote,
--               or the first place in the queue, for a member that holds the votes of a majority
--       7 token  of renew and heal, and to raise the fence to: the token of the lease; else a token to give the
--                vote with, 0 = none
--       8 max waiters, 0 = no bound   9 raises  1 = raise the fence to token if the vote is held
-- Reply (then the run id if it was asked for)
--       1, now, remaining, fence, 1 if a live waiter has an earlier ticket
--       2|3|5, now, ms until the vote ends, in use, waiting   queued; not free, or others wait; queue full
--       0|6|7, now, 0, 0, 0   has no vote (renew); void; given up before
--       9, now, birth µs, ms for which it abstains, 1 if it has no memory at all
-- Cost  if the vote is free and nobody waits: TIME, HMGET, EXISTS, GET, SET, HSET, DEL, ZADD, PEXPIREAT.
--       Otherwise O(log n).
-- Concurrency: another copy of this call may run before this one, after it, or never; what it may do ends at
-- void_from. A leave of the same member may have run before it (tombstone). A yield of the member may run before
-- or after: its client counts no reply to a call that was sent before.
-- include quorum/shared/constants, quorum/shared/keys, shared/clock, quorum/shared/process
local member, void_from, term, mode, token = ARGV[1], tonumber(ARGV[4]), tonumber(ARGV[5]), ARGV[6], tonumber(ARGV[7])
local caller = member
-- include quorum/shared/queue
local function answer(...)
  local reply = { ... }
  if checks then reply[#reply + 1] = run end
  return reply
end

if void_from > 0 and us >= void_from then return answer(6, us, 0, 0, 0) end
if not votes then return answer(9, us, birth, abstains, fresh and 1 or 0) end

local asks = mode == 'wait' or mode == 'try'
if asks and redis.call('EXISTS', holders, queue, alive) == 0 then
  -- The vote is free, so no copy of this call can have taken it.
  local issued = issue_token(token)
  if not issued then return spent end
  give(member, term)
  return answer(1, us, term, issued, 0)
end

-- Reads come first, of every key that is written later: a wrong type ends the script here.
local expiry = tonumber(redis.call('ZSCORE', holders, member) or 0)
local queued = redis.call('ZSCORE', queue, member)
local sign = redis.call('ZSCORE', alive, member)
local last = last_token()

if expiry > now then
  local till = math.max(expiry, now + term)
  redis.call('PEXPIREAT', holders, till, 'GT') -- first, because it is allowed when memory has run out
  redis.call('ZADD', holders, 'XX', 'GT', till, member)
  if ARGV[9] == '1' and token > (last or 0) then
    set_fence(token)
    last = token
  end
  local earlier = 0
  if asks then
    if comes_after(member, first_waiter()) then earlier = 1 end
  end
  return answer(1, us, till - now, last or 0, earlier)
end
if mode == 'renew' or sign and not queued then
  local owner = member
  -- include shared/why_gone
  if gone then return gone end
  if mode == 'renew' then return answer(0, us, 0, 0, 0) end
  return answer(7, us, 0, 0, 0)
end

local function busy(code)
  local held, till = holder()
  return answer(code, us, held and till - now or 0, held and 1 or 0, redis.call('ZCARD', queue))
end

if mode == 'heal' then
  local held = holder()
  if held then
    -- Its owner has no majority, as this member has one, and yields: later, if it misses the hint, so the place lasts.
    enqueue(member, ticket_of(member) - FIRST, math.max(ALIVE, term))
    hint(held)
    return busy(2)
  end
  set_fence(math.max(last or 0, token))
  give(member, term)
  dequeue(member)
  return answer(1, us, term, math.max(last or 0, token), 0)
end

if not queued and not holder() and not first_waiter() then
  local issued = issue_token(token)
  if not issued then return spent end
  give(member, term)
  purge_waiters()
  return answer(1, us, term, issued, 0)
end
if mode == 'try' then return busy(3) end

enqueue(member, ticket_of(member), ALIVE)
purge_waiters()
local given, given_term, issued = advance()
if spent then
  dequeue(member)
  return spent
end
if given == member then return answer(1, us, given_term, issued, 0) end
if not queued then
  local most = tonumber(ARGV[8])
  if most > 0 and redis.call('ZCARD', queue) > most then
    dequeue(member)
    return busy(5)
  end
  local held = holder()
  if held and comes_after(held, member, ticket_of(member)) then hint(held) end -- it yields, without a majority
end
return busy(2)
