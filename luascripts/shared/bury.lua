-- Leaves a tombstone: a copy of the member's enter that arrives before until_ms is refused.
-- Concurrency: the enter may run before this, after it, or never.
local function bury(member, until_ms)
  redis.call('ZADD', alive, until_ms, member)
  keep(alive, until_ms)
end
