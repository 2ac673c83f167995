-- Asks the processes that keep leases of this key to give them back, because a request found no room. The script
-- has included queue, and has set recalled_until and coming_until, the scores of "^" and "^?" in alive (ms); nil: not there.
-- "^" is the mark of a recall. It stands for RECALLED after the last request that found no room; one further ahead
-- is of a clock that went back since. What is granted while it stands is not kept, so lasting contention causes one
-- message per keeper, and no more. "^?" stands for COMING after the message: permits may be on their way, so that a
-- try is worth a short wait. recall returns whether they may. It looks at the register of keepers, which has a member
-- per process (a key of a wrong type: none). A lock's handle says whether it keeps. Without keepers nothing is written.
-- Concurrency: an enter of a keeper ran before this, and its process is told; or it runs later, while the mark
-- stands, and its reply says so; or after that, when nobody has found the key full for a while. The message may be
-- lost: the keeper asks once a second, and is not registered then.
local COMING = 50 -- ms
local function recall()
  if recalled_until and recalled_until > now and recalled_until <= now + RECALLED then
    keep(alive, now + RECALLED) -- first, because it is allowed when memory has run out
    redis.call('ZADD', alive, now + RECALLED, '^')
    return coming_until and coming_until > now
  end
  if fenced and not string.find(earliest()[1] or '', '^[%w_-]+@?%^') then return false end
  local keepers = string.sub(holders, 1, string.find(holders, '}', 1, true) + 1) .. 'keepers'
  local all = redis.pcall('ZRANGE', keepers, '(' .. now, '+inf', 'BYSCORE')
  if #all == 0 then return false end
  redis.call('DEL', keepers)
  redis.call('ZADD', alive, now + RECALLED, '^', now + COMING, '^?')
  keep(alive, now + RECALLED)
  for _, receiver in ipairs(all) do
    -- include shared/inbox
    redis.call(publish, channel, '^ ' .. holders)
  end
  return true
end
