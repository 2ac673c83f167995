-- Drops what is cached of the schema, and takes the right to store from a running
-- load: its lease moves to invalidated, where it can be renewed and hand its result to
-- those who wait for it. The next enter loads anew. Returns 1 if a load was running,
-- and the other schemas of the key that are in use.
local function drop()
  local last = redis.call('GET', fence)
  local member, till = holder()
  -- Reads of every key that is written later: a wrong type ends the script here.
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
  -- Where the fence was evicted, the load's token is not known: it has lost the lease.
  if last then
    redis.call('ZADD', invalidated, till, member .. ' ' .. last)
    keep(invalidated, till)
  end
  return 1, others
end
