-- Issues a token. The clock makes it rise even if the fence was lost, and the fence makes it
-- rise even if the clock went back. This is the first write of a grant: a fence of a wrong
-- type ends the script with nothing done.
local FENCE_KEPT = 86400000 -- ms: how long the last token is kept
local token = us
local last = tonumber(redis.call('SET', fence, us, 'PX', FENCE_KEPT, 'GET') or 0) or 0
if last >= us then
  token = last + 1
  redis.call('SET', fence, token, 'PX', FENCE_KEPT)
end
