-- Takes all permits of a lease in a family with a total away, or a waiter's place, and hands free permits on.
-- Idempotent by the mark: a repeated call answers that the revocation was done before.
-- KEYS  as in keys, then revoked, audit
-- ARGV  1 member, 2 id, 3 reason as in the revoke of permits   4 total that the caller was configured with
-- Reply as in the revoke of permits
-- Cost  O(permits * log n), and the work of advance.
-- Concurrency: as in the revoke of permits.
-- include permits/shared/constants, totals/shared/constants, totals/shared/keys
local revoked, audit = KEYS[9], KEYS[10]
-- include shared/clock
local member, id, reason, caller_total = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4])
local handle = '' -- so that a waiter of the caller's own process is told by a message, too

-- Reads come first, of every key that is written later: a wrong type ends the script here.
local before = redis.call('HGET', revoked, id)
redis.call('XLEN', audit)
for _, set in ipairs({ places, line, alive, ready, turns }) do redis.call('ZCARD', set) end
redis.call('HLEN', limits)
local ticket = redis.call('ZSCORE', queue, member)
local remains = math.max(0, math.ceil(tonumber(redis.call('ZSCORE', holders, member) or 0)) - now) -- see held_since

local key, owner = string.match(member, '^([^:]+):(.*)$')
local n = tonumber(string.match(owner or '', '^[^.]+%.%d+%.(%d+)') or 1)
local all = { member }
for i = 2, n do all[i] = member .. '+' .. i end
redis.call('ZREM', holders, unpack(all))
redis.call('ZREM', places, unpack(all))
-- include totals/shared/use, totals/shared/waiters, totals/shared/turns, shared/bury, shared/mark
local state = before and 2 or 0
if remains > 0 or ticket then
  state = 1
  if ticket then dequeue(member, place_in_line(member, ticket)) end
  bury(member, now + TOMBSTONE)
  if not before then mark(owner, id, reason, remains > 0 and 'lease' or 'waiter', n, remains) end
end
if state > 0 then
  purge()
  if key then refresh(key) end
  advance()
  finish()
end
return { state, us, more }
