-- Registers the handle of the member as one that may keep its lease when it is not used. The script has set
-- keepers; nil: the caller does not keep. added is 1 if the handle was not registered: a recall has taken it
-- out since its last call, or its time was over.
-- keepers is a sorted set: a member per handle that may keep leases of the key, score = until when (ms).
-- Concurrency: a recall takes the handle out in the step in which it is told. So a handle that is still
-- registered at its next call has missed no recall, whatever became of messages.
-- include permits/shared/keeper
local added = 0
if keepers then
  added = redis.call('ZADD', keepers, now + KEEPER, string.match(member, '^[^.]+'))
  redis.call('PEXPIREAT', keepers, now + KEEPER)
end
