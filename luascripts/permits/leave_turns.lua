-- Gives back a lock that served several turns of one process. The turns had tokens that
-- the process numbered itself, from the token of the grant on, so that the fence is set
-- to the last of them before the lock is handed on. All else is as in leave.
--
-- KEYS  holders, queue, alive, fence
-- ARGV  1 member   2 permits: 0 = one, fenced
--       3 copies_until  server ms until which a copy of this member's enter may
--                       still arrive; 0 = none can. A tombstone refuses it.
--       4 last token
--
-- Reply (integers)  as of leave
--
-- Cost  TIME, GET, ZSCORE, PEXPIREAT, SET, and that of leave.
-- Who else may be where: the lease may have expired, or this call may have run before
-- (the member is not there: the fence is left alone, for it may be another holder's).
-- The fence is never set back. If the process dies instead, the fence stays behind the
-- tokens of its turns; the next grant's token is above them all the same, for it is at
-- least the clock, and a process issues at most one token per microsecond.
-- PEXPIREAT is the first write: it is allowed where memory has run out, and the checks
-- of the memory limit end with a script's first write. The fence comes before the
-- leave, which may hand the lock on.

-- include permits/shared/keys
-- include shared/clock
local last = tonumber(redis.call('GET', fence) or '') or 0
local expiry = math.ceil(tonumber(redis.call('ZSCORE', holders, ARGV[1]) or 0))
if expiry > now and last < tonumber(ARGV[4]) then
  redis.call('PEXPIREAT', holders, expiry, 'GT')
  local FENCE_KEPT = 86400000 -- ms: how long the last token is kept
  redis.call('SET', fence, ARGV[4], 'PX', FENCE_KEPT)
end
-- include permits/shared/give_back
advance()
return with_own_outcomes({ state, us })
