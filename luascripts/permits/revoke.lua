-- Takes all permits of a lease away, or a waiter's place, and hands free permits on. Idempotent by the mark: a
-- repeated call answers that the revocation was done before.
-- KEYS  holders, queue, alive, limit (or fence, if fenced), revoked, audit
-- ARGV  1 fenced   1 = grants issue a token from fence   2 member   '' = none was found
--       3 id, as listings show it   4 reason
-- Reply 1|2|0, now, more   revoked now; revoked before; no such lease or waiter
-- Cost  O(permits * log n), and the work of advance.
-- Concurrency: the holder may have given back, or the lease may have been granted since the member was found;
-- it is taken in either state. A copy of its enter may be under way, or its process may ask as if it waited
-- (tombstone). Another copy of this call may have run (mark).
-- include permits/shared/constants, permits/shared/keys
local revoked, audit = KEYS[5], KEYS[6]
-- include shared/clock
local fenced, member, id, reason = ARGV[1] == '1', ARGV[2], ARGV[3], ARGV[4]
local handle = '' -- so that a waiter of the caller's own process is told by a message, too
-- include permits/shared/queue, shared/bury, shared/mark
-- Reads come first, of every key that is written later: a wrong type ends the script here.
local before = redis.call('HGET', revoked, id)
redis.call('XLEN', audit)
redis.call('ZCARD', queue)
redis.call('ZCARD', alive)
local last = tonumber(redis.call('GET', fence) or '') or 0 -- or the stored limit
local expiry = math.ceil(tonumber(redis.call('ZSCORE', holders, member) or 0)) -- see held_since
local remains = math.max(0, expiry - now)

local n = tonumber(string.match(member, '^[^.]+%.%d+%.(%d+)') or 1)
redis.call('ZREM', holders, unpack(members_of(member, n)))
-- If the clock went back since the grant, tokens of turns (leave_turns) may be above the fence, but not above the end.
if fenced and last > us and last < expiry * 1000 then redis.call('SET', fence, expiry * 1000, 'PX', 86400000) end
local state = before and 2 or 0
local waited = redis.call('ZREM', queue, member) == 1
if remains > 0 or waited then
  state = 1
  bury(member, now + TOMBSTONE)
  if not before then mark(member, id, reason, remains > 0 and 'lease' or 'waiter', n, remains) end
end
if state > 0 then
  purge()
  advance()
end
return { state, us, more and 1 or 0 }
