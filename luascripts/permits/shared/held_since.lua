-- The score of a permit is when it expires (ms), rounded up. Its fraction, of 4096
-- parts, says to listings how long before that the lease was granted: part k stands for
-- e^(k * 0.004) - 1 seconds, which is within 0.2 %. No fraction: the TTL in the member
-- says it, because the lease was granted for that and never renewed.
local function score_of(till, granted_before)
  local part = math.floor(math.log(1 + granted_before / 1000) / 0.004 + 0.5)
  return till - 1 + math.max(1, math.min(4095, part)) / 4096
end
