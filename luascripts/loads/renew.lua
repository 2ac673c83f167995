-- Moves the end of a load's lease to ttl from now. If no caller of its own process is left, it does so only as
-- long as another process waits for the load. It never shortens a lease, and never brings one back.
-- KEYS  as in keys; or holders, fence, schemas: those that exist for sure while a slot moves (unwatched must be 0)
-- ARGV  1 member   2 ttl (ms)   3 unwatched  1 = end the lease if nobody waits for its load
--       4 copies_until, for a lease that ends
-- Reply remaining; 0 if the lease has ended; -1 if nobody waits: it was given back; -2 not in holders: name all keys
-- Cost  TIME, ZSCORE, a range of the invalidated loads if it is one of those, PEXPIREAT, ZADD.
-- Concurrency: another process may be about to wait for this load. If its enter runs before this call, the lease
-- continues. If it runs after this call, it finds no load to wait for. The check and the release are atomic.
-- include shared/clock, loads/shared/load, shared/keep, shared/purge_waiters, shared/bury
local owner, key, entry, token = ARGV[1], holders, ARGV[1], nil
if #KEYS == 3 then fence, schemas = queue, alive end -- by their places
local expiry = tonumber(redis.call('ZSCORE', holders, owner) or 0)
if expiry <= now then
  if #KEYS == 3 then return { -2 } end -- it may have been invalidated, or revoked
  expiry, token, entry = invalidated_load(owner)
  key = invalidated
  if not expiry then
    -- include shared/why_gone
    return gone or { 0 }
  end
end
local last = last_token()
if ARGV[3] == '1' then
  purge_waiters()
  if count_waiters(token or last, key == holders) == 0 then
    redis.call('ZREM', key, entry)
    local copies_until = tonumber(ARGV[4])
    if copies_until > now then bury(owner, copies_until) end
    return { -1 }
  end
end
local till = now + tonumber(ARGV[2])
if till <= expiry then return { expiry - now } end
redis.call('PEXPIREAT', key, till, 'GT')
redis.call('ZADD', key, 'XX', 'GT', till, entry)
redis.call('PEXPIREAT', fence, till + ALIVE, 'GT')
if key == holders then
  redis.call('ZADD', schemas, 'XX', 'GT', till + ALIVE, schema)
  redis.call('PEXPIREAT', schemas, till + ALIVE, 'GT')
end
return { till - now }
