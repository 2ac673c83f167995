-- A new token, t. Not a script: embed.go puts this text where a grant begins. It
-- rises although the fence was lost (by the clock) and although the clock went
-- back (by the fence). It is a grant's first write: a key of a wrong type ends the
-- script with nothing done.
local t = us
local last = tonumber(redis.call('SET', KEYS[4], us, 'PX', FENCE, 'GET') or 0) or 0
if last >= us then
  t = last + 1
  redis.call('SET', KEYS[4], t, 'PX', FENCE)
end
