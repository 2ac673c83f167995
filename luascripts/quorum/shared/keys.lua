-- holders  sorted set: the member that has this server's vote, score = expiry (ms)
-- queue    sorted set: a member per waiter, score = ticket (µs), or FIRST less
-- alive    sorted set: the same waiters, score = alive until (ms); and tombstones
-- fence    string: the last token that a vote was given with
-- born     hash of the family, without an expiry: see process.lua
-- A member is <handle>.<seq>.1.<ttl ms>.1.<ticket µs>.<try>. The ticket is the same on all servers.
local holders, queue, alive, fence, born = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
