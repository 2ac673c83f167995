-- Drops the cached value and the remembered failure of the schema, and takes the right to store from a
-- running load. The lease of that load moves to invalidated. There it can be renewed, and can hand its result
-- to those that wait for it. The next enter loads anew. Returns 1 if a load was running, and the other
-- schemas of the key that are in use.
-- Concurrency: a load may be running, be about to publish, or be renewing. What it publishes later is not
-- stored, because its lease is no longer in holders. Another copy of this call finds nothing to drop, or what
-- was loaded in between.
local function drop()
  local last = last_token()
  local member, till = holder()
  -- Read every key that is written later: a wrong type ends the script here.
  redis.call('ZCARD', invalidated)
  for _, key in ipairs({ value, failure, published }) do redis.call('STRLEN', key) end
  local others = {}
  for _, name in ipairs(redis.call('ZRANGE', schemas, now, '+inf', 'BYSCORE', 'LIMIT', 0, BATCH)) do
    if name ~= schema then others[#others + 1] = name end
  end
  redis.call('DEL', value, failure, published)
  redis.call('ZREM', schemas, schema)
  if not member then return 0, others end
  redis.call('ZREM', holders, member)
  local expired = redis.call('ZCOUNT', invalidated, '-inf', now)
  if expired > 0 then redis.call('ZREMRANGEBYRANK', invalidated, 0, math.min(expired, BATCH) - 1) end
  -- If the fence was evicted or set by hand, the load's token is unknown, and the load has lost its lease.
  if last > 0 and last <= MOST then
    redis.call('ZADD', invalidated, till, member .. ' ' .. string.format('%.0f', last))
    keep(invalidated, till)
  end
  return 1, others
end
