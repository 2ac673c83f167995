-- Takes the right to load away from the member that has it, even if the load was invalidated, or takes a waiter
-- out of the queue. Those that wait for the load are told, so that one of them loads. Idempotent by the mark: a
-- repeated call answers that the revocation was done before.
-- KEYS  as in keys, then revoked, audit, which the schemas share
-- ARGV  1 member   '' = none was found   2 id, as listings show it   3 reason
-- Reply 1|2|0, now, more   revoked now; revoked before; no such load or waiter
-- Cost  O(log n), and one PUBLISH per waiting process. One call tells 250 of them.
-- Concurrency: the load may have published, or its lease may have ended. An invalidation may have moved the
-- lease. A copy of its enter may be under way (tombstone). Another copy of this call may have run (mark).
-- include shared/clock, loads/shared/load, shared/keep, shared/bury
local revoked, audit = KEYS[10], KEYS[11]
-- include shared/mark
local member, id, reason = ARGV[1], ARGV[2], ARGV[3]
-- Read every key that is written later: a wrong type ends the script here.
local before = redis.call('HGET', revoked, id)
redis.call('XLEN', audit)
redis.call('ZCARD', queue)
redis.call('ZCARD', alive)
local last = last_token()
local remains = math.max(0, math.ceil(tonumber(redis.call('ZSCORE', holders, member) or 0)) - now)
local is_held = remains > 0
local _, token, entry = invalidated_load(member)

redis.call('ZREM', holders, member)
local waited = redis.call('ZREM', queue, member) == 1
local state, left = before and 2 or 0, 0
if is_held or entry or waited then
  state = 1
  if entry then redis.call('ZREM', invalidated, entry) end
  bury(member, now + TOMBSTONE)
  if not before then mark(member, id, reason, waited and 'waiter' or 'load', 1, remains) end
end
if is_held then
  left = tell(last, true, 'F')
elseif entry then
  left = tell(token, false, 'F')
elseif state == 2 and not holder() and redis.call('ZCARD', invalidated) == 0 then
  left = tell(0, true, 'F') -- the waiters that an earlier call has not told
end
return { state, us, left > 0 and 1 or 0 }
