-- Tells readers once more to drop their copies, and says which are still registered: for a handle that did not
-- listen when an invalidation told them, and against lost messages.
-- KEYS  near
-- ARGV  1 number of the invalidation, '' = tell nobody   2 handle that listens for acknowledgements
--       3… handles of readers, at most 250
-- Reply now; then for each reader, in order, 1 if it is still registered
-- Cost  TIME, ZMSCORE, and a message per reader that is registered.
-- Concurrency: a reader that is not registered any more has dropped its copy, also if its acknowledgement was
-- lost. Nothing but the acknowledgement or the end of its lease takes a registration away. A reader that is
-- registered may have dropped the copy and registered anew; it acknowledges all the same.
-- include shared/clock, shared/constants
local near = KEYS[1]
local holders = near -- any key of the resource tells the channels
-- include loads/shared/readers
local asked = {}
for i = 3, #ARGV do asked[#asked + 1] = ARGV[i] end
local reply, members, scores = { us }, {}, {}
for i, score in ipairs(redis.call('ZMSCORE', near, unpack(asked))) do
  local lasts = tonumber(score or 0) > now
  reply[#reply + 1] = lasts and 1 or 0
  if lasts then members[#members + 1], scores[#scores + 1] = asked[i], score end
end
if ARGV[1] ~= '' then tell_readers(members, scores, ARGV[1], ARGV[2]) end
return reply
