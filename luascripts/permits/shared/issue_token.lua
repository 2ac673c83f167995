-- Issues a token. The clock makes it rise even if the fence was lost, and the fence makes it rise even if the
-- clock went back. This is the first write of a grant: a fence of a wrong type ends the script here.
-- Somebody's hand may have set the fence. What is no number, nan, or negative counts as lost. Above 2^53 - 1
-- numbers have gaps, so the next token could equal the last one. Then token is nil, no_token is the error to
-- answer with, and the value is put back: otherwise the next call would issue a token from the clock, which
-- is lower.
-- Concurrency: no other grant of the key can run at the same time, and each issues its token here, so tokens
-- rise in the order of the grants.
local FENCE_KEPT = 86400000 -- ms: how long the last token is kept
local token, no_token = us, nil
local before = redis.call('SET', fence, us, 'PX', FENCE_KEPT, 'GET')
local last = tonumber(before or 0) or 0
if last >= us then
  token = math.floor(last) + 1
  if token > 9007199254740991 then
    -- include shared/spent_fence
    token, no_token = nil, spent_fence(before)
  end
  redis.call('SET', fence, token or before, 'PX', FENCE_KEPT)
end
