-- Takes a lock for one run of a job, or a place in the queue, unless the run is complete: from the call of
-- complete on that stored it. Everything else is as in enter.
-- KEYS  holders, queue, alive, fence, done
-- Reply 8, now, 0, 0, 0, 0   the run is complete; this call took nothing
-- Cost  EXISTS, and the cost of enter.
-- Concurrency: whoever completes the run holds the lock, and stores it in the call that gives the lock back. So
-- a grant of this call says that the run is not complete, and nobody else can complete it while the grant lasts.
-- A grant by another call does not say that: the handle then asks once more. A copy of this call may have queued
-- the member before the run was complete; the handle knows of copies, and sends a leave.
if redis.call('EXISTS', KEYS[5]) == 1 then
  local time = redis.call('TIME')
  return { 8, time[1] * 1000000 + time[2], 0, 0, 0, 0 }
end
local keepers = nil
-- include permits/shared/enter
