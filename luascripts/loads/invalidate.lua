-- Drops what is cached of a key, and takes the right to store from a running load:
-- its lease moves to invalidated, where it can be renewed and hand its result to
-- those who wait for it. The next enter loads anew.
--
-- KEYS  holders, queue, alive, fence, value, failure, published, invalidated, schemas
--
-- Reply
--   now µs, 1 if a load was running
--   and a string for each other schema of the key that is in use: the caller runs this
--   script for each of these, too
--
-- Cost  TIME, GET, ZRANGE, ZCARD, three STRLEN, ZRANGE, DEL, ZREM; two writes more
--       where a load runs.
-- Who else may be where: a load may run, be about to publish, or have published
-- (what it stored goes); another copy of this call drops what was loaded in between,
-- no more. A load of another schema that begins after this call is not listed, and
-- may store: it began after the invalidation was called.
-- DEL comes first: it is allowed where memory has run out.

-- include shared/clock
-- include loads/shared/load
-- include shared/keep
-- include loads/shared/drop

local running, others = drop()
return { us, running, unpack(others) }
