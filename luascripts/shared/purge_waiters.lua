-- Drops waiters whose sign of life has run out, and expired tombstones. Reports whether there may be more.
-- Concurrency: a waiter that was dropped may be alive and late. Its next ask learns that it is gone, and it
-- enters again with its ticket.
local function purge_waiters()
  local gone = redis.call('ZRANGE', alive, '-inf', now, 'BYSCORE', 'LIMIT', 0, BATCH)
  if #gone > 0 then
    redis.call('ZREM', queue, unpack(gone))
    redis.call('ZREM', alive, unpack(gone))
  end
  return #gone == BATCH
end

-- Takes a waiter out of the queue.
local function dequeue(member)
  redis.call('ZREM', queue, member)
  redis.call('ZREM', alive, member)
end
