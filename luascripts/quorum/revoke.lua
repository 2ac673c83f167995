-- Takes the vote of a member away, or its place in the queue, and gives the vote to the next waiter. Idempotent
-- by the mark: a repeated call answers that the revocation was done before.
-- KEYS  as in keys, then revoked, audit
-- ARGV  1 member, 2 checks, 3 ttl as in enter   4 id, as listings show it   5 reason
-- Reply 1|2|0, now   revoked now; revoked before; no such vote or waiter
-- Cost  O(log n).
-- Concurrency: the owner may give back, renew or heal at this moment: its next call finds the mark. A copy of
-- its enter may be under way (tombstone). Another copy of this call may have run (mark).
-- include quorum/shared/constants, quorum/shared/keys
local revoked, audit = KEYS[6], KEYS[7]
-- include shared/clock, quorum/shared/process
local member, id, reason = ARGV[1], ARGV[4], ARGV[5]
local caller = member
-- include quorum/shared/queue, shared/bury, shared/mark
local before = redis.call('HGET', revoked, id)
redis.call('XLEN', audit)
redis.call('ZCARD', queue)
redis.call('ZCARD', alive)
redis.call('GET', fence)
local remains = math.max(0, tonumber(redis.call('ZSCORE', holders, member) or 0) - now)
redis.call('ZREM', holders, member)
local waited = redis.call('ZREM', queue, member) == 1
local state = before and 2 or 0
if remains > 0 or waited then
  state = 1
  bury(member, now + TOMBSTONE)
  if not before then mark(member, id, reason, remains > 0 and 'lease' or 'waiter', 1, remains) end
end
if state > 0 then advance() end
return { state, us }
