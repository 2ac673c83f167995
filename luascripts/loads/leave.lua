-- Gives the lease back without a result, or stops waiting, depending on the member's state. Idempotent by
-- member. It never touches the lease of another member.
-- KEYS  as in keys
-- ARGV  1 member   2 copies_until
-- Reply 1|2|0, now   had the lease; was waiting; neither
-- Cost  O(log n), and one message per waiting process. These processes enter again.
-- Concurrency: the lease may have expired, and another member may load; that lease stays as it is. An
-- invalidation may have moved the lease; the entry in invalidated is removed. The enter of this member may still
-- be under way (tombstone).
-- include shared/clock, loads/shared/load, shared/keep, shared/bury
local member, copies_until = ARGV[1], tonumber(ARGV[2])
local state, why = 0, nil
local _, token, entry = invalidated_load(member)
if redis.call('ZREM', holders, member) == 1 then
  state = 1
  tell((last_token()), true, 'F')
elseif entry then
  redis.call('ZREM', invalidated, entry)
  state = 1
  tell(token, false, 'F')
elseif redis.call('ZREM', queue, member) == 1 then
  redis.call('ZREM', alive, member)
  state = 2
else
  local owner = member
  -- include shared/why_gone
  why = gone
end
if copies_until > now then bury(member, copies_until) end
return why or { state, us }
