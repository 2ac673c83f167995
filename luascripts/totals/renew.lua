-- Renews a lease in a family with a total. KEYS are holders, places; all else is as in the renew of permits.
-- Concurrency: as there.
-- include shared/clock, permits/shared/held_since, permits/shared/push_expiry
local holders = KEYS[1]
local remains = push_expiry(holders, ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4] or ''), KEYS[2])
if remains == 0 then
  local owner = string.match(ARGV[1], ':(.*)$') or ''
  -- include shared/why_gone
  if gone then return gone end
end
return { remains }
