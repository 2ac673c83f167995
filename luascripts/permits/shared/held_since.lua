-- The score of a permit is its expiry (ms), rounded up. Its fraction, in parts of 1/4096, tells listings how
-- long before the expiry the lease was granted: part k stands for e^(k * 0.004) - 1 seconds, which is within
-- 0.2 %. If there is no fraction, the lease was granted for the TTL in the member and never renewed, so the
-- TTL says it.
local function score_of(till, granted_before)
  local part = math.floor(math.log(1 + granted_before / 1000) / 0.004 + 0.5)
  return till - 1 + math.max(1, math.min(4095, part)) / 4096
end
