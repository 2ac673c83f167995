-- Says whether this server votes for the family, and makes it vote once its client knows that it may.
-- KEYS  born
-- ARGV  1 birth of the abstention that is to end (µs); 0 = only look   2 checks, 3 ttl as in enter
--       4 floor  every token is to be above it   5 begins  1 = no server of the family has ever voted, so this one
--       need not wait
-- Reply 1 if it votes, now, birth µs, ms for which it still abstains, 1 if it has no memory at all, the highest
--       token, the run id
-- Cost  TIME, HMGET, HSET.
-- Concurrency: the process may have been restarted since its client looked. Then birth names an abstention that
-- is over, and nothing changes. Two clients may both end an abstention: the higher floor counts.
local born = KEYS[1]
-- include shared/clock, quorum/shared/process
local told = tonumber(ARGV[4])
if tonumber(ARGV[1]) == birth and (abstains == 0 or fresh and ARGV[5] == '1') and not (votes and floor >= told) then
  top, floor = math.max(top, told), math.max(floor, told)
  redis.call('HSET', born, 'votes', 1, 'floor', floor, 'top', top, 'fresh', 0)
  votes, abstains = true, 0
end
return { votes and 1 or 0, us, birth, abstains, fresh and 1 or 0, top, run }
