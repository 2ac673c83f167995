-- Pushes the expiry of all permits of a member to ttl (ms) from now, if it is held.
-- Never shortens it, and never brings a lease back: not after a leave, not after expiry,
-- not after its key was deleted. held_for is for how long (ms) the lease has been held,
-- for listings; it may be absent. Returns what remains (ms), 0 where the lease has ended.
-- The script has included the clock and held_since before.
--
-- PEXPIREAT is the first write: it is allowed where memory has run out, and the checks
-- of the memory limit end with a script's first write.
local function push_expiry(holders, member, permits, ttl, held_for, places)
  local expiry = math.ceil(tonumber(redis.call('ZSCORE', holders, member) or 0)) -- see held_since
  if expiry <= now then return 0 end
  local till = now + ttl
  if till <= expiry then return expiry - now end
  redis.call('PEXPIREAT', holders, till, 'GT')
  if places then redis.call('PEXPIREAT', places, till, 'GT') end
  local args = { held_for and score_of(till, held_for + ttl) or till, member }
  for i = 2, permits do
    args[2 * i - 1], args[2 * i] = args[1], member .. '+' .. i
  end
  redis.call('ZADD', holders, 'XX', 'GT', unpack(args))
  return till - now
end
