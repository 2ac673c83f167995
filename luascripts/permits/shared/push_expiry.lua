-- Moves the expiry of all permits of a member to ttl (ms) from now, if it is held. It never shortens a lease, and
-- never brings one back: not after a leave, not after its expiry, not after its key was deleted. held_for is how
-- long (ms) the lease has been held, for listings; it may be absent. Returns the time that remains (ms), 0 if
-- the lease has ended. The script has included the clock and held_since before.
-- Concurrency: a leave, a revocation or the expiry may have come first; then the member is not there, and stays
-- away. Another copy may have set a later end, which stays.
local function push_expiry(holders, member, permits, ttl, held_for, places)
  local expiry = math.ceil(tonumber(redis.call('ZSCORE', holders, member) or 0)) -- see held_since
  if expiry <= now then return 0 end
  local till = now + ttl
  if till <= expiry then return expiry - now end
  redis.call('PEXPIREAT', holders, till, 'GT')
  if places then redis.call('PEXPIREAT', places, till, 'GT') end
  local args = { held_for and score_of(till, held_for + ttl) or till, member }
  for i = 2, permits do args[2 * i - 1], args[2 * i] = args[1], member .. '+' .. i end
  redis.call('ZADD', holders, 'XX', 'GT', unpack(args))
  return till - now
end
