-- holders       sorted set: a member per held permit, score = expiry (ms)
-- queue         sorted set: a member per waiter, score = ticket (µs), plus PARKED while its sign of life is overdue
-- alive         sorted set: the same waiters, score = alive until (ms). A member that is not in queue is a
--               tombstone: that request was given up, and its enter is void until then.
-- fence         string, if fenced: the last fencing token
-- stored_limit  string, if not fenced: a limit that was set at run time
local holders, queue, alive, fence = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local stored_limit = fence -- a fenced lease has one permit, and no limit to store
