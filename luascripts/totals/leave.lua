-- Gives permits back or leaves the queue, depending on the member's state, and hands free permits to the waiters
-- whose turn it is, of any key. Idempotent by member. It never touches a permit of another member.
-- KEYS  as in keys
-- ARGV  1 member   2 permits   3 copies_until
-- Reply 1   given back, and nobody waits for it
--       1|2|0, now, more   given back; was queued; was neither. Then outcomes
-- Cost  if nobody waits: ZREM of places and holders, EXISTS. Otherwise O(log n) and one message per grant.
-- Concurrency: the lease may have expired and been granted to another member, which keeps it. The enter of this
-- member may still be under way (tombstone). The next owner may be dead (probation, see serve).
-- include permits/shared/constants, totals/shared/constants, totals/shared/keys
local member, permits, copies_until = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
local given_back
if permits == 1 then
  redis.call('ZREM', places, member)
  given_back = redis.call('ZREM', holders, member)
else
  local all = { member }
  for i = 2, permits do all[i] = member .. '+' .. i end
  redis.call('ZREM', places, unpack(all))
  given_back = redis.call('ZREM', holders, unpack(all))
end
local key, handle, caller_total = string.match(member, '^([^:]+):([^.]+).*%.(%d+)$')
if given_back > 0 and copies_until == 0 then
  if redis.call('EXISTS', queue, line) == 0 then return { 1 } end
  -- Others wait, but not for these permits: neither for the total nor for this key.
  if redis.call('EXISTS', ready, turns) == 0
    and #redis.call('ZRANGE', line, '[' .. key .. ':', '(' .. key .. ';', 'BYLEX', 'LIMIT', 0, 1) == 0 then
    return { 1 }
  end
end
caller_total = tonumber(caller_total)
-- include shared/clock, totals/shared/use, totals/shared/waiters, totals/shared/turns, shared/bury
local state, why = 1, nil
if given_back == 0 then
  local ticket = redis.call('ZSCORE', queue, member)
  state = ticket and 2 or 0
  if ticket then
    dequeue(member, place_in_line(member, ticket))
  else
    local owner = string.match(member, ':(.*)$') or ''
    -- include shared/why_gone
    why = gone
  end
end
if copies_until > now then bury(member, copies_until) end
purge_permits()
refresh(key)
advance()
finish()
return why or with_own_outcomes({ state, us, more })
