-- Reports what became of an attempt. It changes nothing.
--
-- KEYS  holders, queue, revoked
-- ARGV  1 member   2 id, as listings show it
--
-- Reply  1 held; 2 queued; 3 revoked, with the reason; 0 none of these
--
-- Cost  TIME, ZSCORE, and ZSCORE and HGET if it is not held.
--
-- Concurrency: it only reads, so any other call may run before or after it.

-- include shared/clock
local holders, queue, revoked = KEYS[1], KEYS[2], KEYS[3]
if tonumber(redis.call('ZSCORE', holders, ARGV[1]) or 0) > now then return { 1 } end
if redis.call('ZSCORE', queue, ARGV[1]) then return { 2 } end
local reason = redis.call('HGET', revoked, ARGV[2])
if reason then return { 3, reason } end
return { 0 }
