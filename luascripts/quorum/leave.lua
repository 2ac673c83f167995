-- Gives the vote back, or leaves the queue, and gives the vote to the next waiter. Idempotent by member.
-- KEYS  as in keys, then done, if a run is complete
-- ARGV  1 member, 2 checks, 3 ttl as in enter   4 copies_until
--       5 lead  token for the next owner, the same on all servers; 0 = the one after the last
--       6 keep (ms)  if the vote is held, store in done that the run is complete; 0 = nothing
-- Reply 1|2|3|0, now   it had the vote; was queued; this server abstains, so it may have forgotten the vote, and
--       gives it to nobody else; none of these
-- Cost  if nobody waits: TIME, HMGET, ZSCORE, ZREM, EXISTS.
-- Concurrency: the vote may have expired and gone to another member, which keeps it. A copy of the member's
-- enter may be under way (tombstone). The next owner may be dead (probation).
-- include quorum/shared/constants, quorum/shared/keys, shared/clock, quorum/shared/process
local member, copies_until, lead, keep_for = ARGV[1], tonumber(ARGV[4]), tonumber(ARGV[5]), tonumber(ARGV[6])
local till = tonumber(redis.call('ZSCORE', holders, member) or 0)
local had = redis.call('ZREM', holders, member) == 1 and till > now
if keep_for > 0 then
  if had then
    redis.call('SET', KEYS[6], member, 'PX', keep_for)
  elseif redis.call('GET', KEYS[6]) == member then -- an earlier copy of this call has stored it
    had = true
  end
end
if had and copies_until == 0 and redis.call('EXISTS', queue) == 0 then return { 1, us } end

local caller = member
-- include quorum/shared/queue, shared/bury
local state, why = 0, nil
if had then
  state = 1
elseif redis.call('ZREM', queue, member) == 1 then
  redis.call('ZREM', alive, member)
  state = 2
else
  local owner = member
  -- include shared/why_gone
  why = gone
  if not votes then state = 3 end
end
if copies_until > now then bury(member, copies_until) end
advance(lead)
return why or { state, us }
