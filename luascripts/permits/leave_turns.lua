-- Gives back a lock that served several turns of one process. The process numbered the tokens of the turns
-- itself, starting from the token of the grant. So this script sets the fence to the last of them before the
-- leave, which may hand the lock on. Everything else is as in leave.
-- KEYS  holders, queue, alive, fence
-- ARGV  1 member   2 permits; 0 = one, fenced   3 copies_until   4 last token
-- Reply as in leave
-- Cost  TIME, GET, ZSCORE, PEXPIREAT, SET, and the cost of leave.
-- Concurrency: the lease may have expired, or a copy of this call may have run before. Then the member is not
-- there, and the fence stays as it is, because it may be another holder's. The fence is never set back. If the
-- process dies instead, the fence stays behind the tokens of its turns. The next grant's token is above them all
-- the same: it is at least the clock, and a process issues at most one token per microsecond.
-- include permits/shared/keys, shared/clock
local last = tonumber(redis.call('GET', fence) or '') or 0
local expiry = math.ceil(tonumber(redis.call('ZSCORE', holders, ARGV[1]) or 0))
if expiry > now and not (last >= tonumber(ARGV[4])) then -- nan is less than any token
  redis.call('PEXPIREAT', holders, expiry, 'GT')
  local FENCE_KEPT = 86400000 -- ms: how long the last token is kept
  redis.call('SET', fence, ARGV[4], 'PX', FENCE_KEPT)
end
-- include permits/shared/give_back
advance()
return why or with_own_outcomes({ state, us })
