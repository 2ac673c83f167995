-- Takes registrations of a reader back, which has dropped its copies before, and passes its acknowledgement on
-- to the handle that told it to.
-- KEYS  near of each key, at most 250; on a Cluster all of one slot
-- ARGV  1 handle of the reader   2 handle that waits for the acknowledgement, '' = none   3 the acknowledgement
--       4… for each key the score of the registration that ends; '' = whatever it is
-- Reply now
-- Cost  TIME, a ZSCORE and a ZREM per key, and one message.
-- Concurrency: the reader may have registered anew since it was told. That registration has a higher score, and
-- stays. Another copy of this call finds nothing to take back.
-- A key of a wrong type changes nothing: the copy is dropped, and the handle must hear of it.
-- include shared/clock
local member, receiver = ARGV[1], ARGV[2]
for i, near in ipairs(KEYS) do
  local told, score = ARGV[3 + i], redis.pcall('ZSCORE', near, member)
  if type(score) == 'string' and (told == '' or tonumber(told) == tonumber(score)) then
    redis.pcall('ZREM', near, member)
  end
end
if receiver ~= '' then
  local holders = KEYS[1] -- any key of the resource tells the channel
  -- include shared/inbox
  redis.call(publish, channel, ARGV[3])
end
return { us }
