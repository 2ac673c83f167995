-- near  sorted set, which the schemas of a key share: the handles of the processes that may
--       serve a copy of the value from their memory, score = until when (ms). A score covers
--       the whole read lease, and of one member it only rises.
-- The readers are the members whose lease is not over. The script has included the clock and the constants
-- before, and has set near.
-- Concurrency: a reader may be registering at this moment: it registers before this script and is listed, or
-- after it and reads what this script left. A reader may have dropped its copy, and its message about that
-- may be under way. Its registration then ends a little later.
local LONGEST = 60001 -- ms: no read lease is longer. A clock that went back may say so.

-- Lists the readers but for skip: at most BATCH of them, those whose leases last longest. Returns ms until
-- the leases of all others are over, the ms that the leases of the listed ones last, handles and scores.
local function list_readers(skip)
  local all = redis.call('ZRANGE', near, '+inf', '(' .. now, 'BYSCORE', 'REV', 'LIMIT', 0, BATCH + 2, 'WITHSCORES')
  local rest, lasts, members, scores = 0, {}, {}, {}
  for i = 1, #all, 2 do
    local left = math.min(tonumber(all[i + 1]) - now, LONGEST)
    if all[i] == skip then -- its own process drops its copy by itself
    elseif #members == BATCH then
      rest = left
      break
    else
      members[#members + 1], scores[#scores + 1], lasts[#lasts + 1] = all[i], all[i + 1], left
    end
  end
  return rest, lasts, members, scores
end

-- Tells readers to drop their copies, and to acknowledge that under the number to the handle. Nothing depends
-- on the message: without an acknowledgement the handle waits until the lease is over.
local function tell_readers(members, scores, number, handle)
  for i, receiver in ipairs(members) do
    -- include shared/inbox
    redis.call(publish, channel, string.format('N %s %.0f %s %s', number, tonumber(scores[i]), handle, near))
  end
end
