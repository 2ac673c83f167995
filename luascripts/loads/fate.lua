-- Reports what became of an attempt to load. It changes nothing.
--
-- KEYS  holders, queue, alive, fence, value, failure, published, invalidated, schemas,
--       revoked, which the schemas share
-- ARGV  1 member   2 id, as listings show it
--
-- Reply  1 held, even if the load was invalidated; 2 waiting; 3 revoked, with the reason;
--        0 none of these
--
-- Cost  TIME, ZSCORE, and a range, ZSCORE and HGET if it is not held.
--
-- Concurrency: it only reads, so any other call may run before or after it.

-- include shared/clock
-- include loads/shared/load
if tonumber(redis.call('ZSCORE', holders, ARGV[1]) or 0) > now or invalidated_load(ARGV[1]) then return { 1 } end
if redis.call('ZSCORE', queue, ARGV[1]) then return { 2 } end
local reason = redis.call('HGET', KEYS[10], ARGV[2])
if reason then return { 3, reason } end
return { 0 }
