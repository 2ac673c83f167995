-- Drops the cached value and the remembered failure of a key, and takes the right to store
-- from a running load. The lease of that load moves to invalidated. There it can be renewed,
-- and can hand its result to those that wait for it. The next enter loads anew.
--
-- KEYS  holders, queue, alive, fence, value, failure, published, invalidated, schemas
--
-- Reply
--   now µs, 1 if a load was running
--   and a string for each other schema of the key that is in use: the caller runs this
--   script for each of these, too
--
-- Cost  TIME, GET, ZRANGE, ZCARD, three STRLEN, ZRANGE, DEL, ZREM; two more writes if a
--       load is running.
--
-- Concurrency: a load may be running, be about to publish, or have published; a stored result
-- is dropped. Another copy of this call only drops values that were loaded in between. A load
-- of another schema that begins after this call is not listed, and may store: it began after
-- the invalidation was called.
--
-- DEL comes first because it is allowed when memory has run out.

-- include shared/clock
-- include loads/shared/load
-- include shared/keep
-- include loads/shared/drop

local running, others = drop()
return { us, running, unpack(others) }
