-- Gives a lock back and stores that its run is complete, in one step, if the lock is still held. Else as in leave.
-- KEYS  holders, queue, alive, fence, done
-- ARGV  1 member   2 permits; always 0 = one, fenced   3 copies_until
--       4 keep  ms for which the completion is remembered
-- Reply as in leave. 1 says that the run is complete.
-- Cost  TIME, GET, ZSCORE, PEXPIREAT, SET, and the cost of leave.
-- Concurrency: a copy of this call may have run before. Then done has the member, and the answer is the same;
-- what that copy handed on, the handle learns by asking. The lease may have expired, and another holder may work
-- on the run, or have completed it: then the member is not there, or its score is in the past, and nothing is
-- stored. A plain leave of the same member may follow and finds nothing. After a FLUSHALL a late copy of the enter
-- may get the lease once more when another holder has completed the run: then done names that one, and stays.
-- include permits/shared/keys, shared/clock
local done = KEYS[5]
local stored = redis.call('GET', done)
local repeated = stored == ARGV[1]
local expiry = math.ceil(tonumber(redis.call('ZSCORE', holders, ARGV[1]) or 0))
if expiry > now and not stored then
  redis.call('PEXPIREAT', holders, expiry, 'GT')
  redis.call('SET', done, ARGV[1], 'PX', ARGV[4])
elseif expiry > 0 then
  redis.call('ZREM', holders, ARGV[1]) -- so that the answer is not that it was held
end
-- include permits/shared/give_back
if repeated then state, why = 1, nil end
advance()
return why or with_own_outcomes({ state, us })
