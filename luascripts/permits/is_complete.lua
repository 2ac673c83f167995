-- Says whether a run is complete. A client may send a GET to replicas, or answer it from its own cache.
-- KEYS  done
-- Reply 1 complete, 0 not
-- Cost  EXISTS.
-- Concurrency: the caller holds the lock, so nobody can complete the run after this call. An earlier holder has
-- completed it before it handed the lock on, or never will.
return { redis.call('EXISTS', KEYS[1]) }
