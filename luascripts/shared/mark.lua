-- Marks an attempt as revoked, notes it in the audit stream, and sends its process a hint, which makes it
-- renew or ask soon. The script has included the clock before, has already written something (so that a
-- memory limit does not stop it here), and has set:
--   revoked  hash: listed id of a revoked attempt = the reason
--   audit    stream: one entry per revocation; a mark lives as long as its entry
-- remains is how long the lease would have lasted (ms), 0 for a waiter. If the owner is cut off from Redis,
-- it may go on for that long.
-- Concurrency: the owner may renew, ask, or give back at this moment. Its next call finds the mark. Another
-- copy of the revocation has found the mark before it comes here.
local MARKS = 1000            -- entries of audit that are kept
local MARK_KEPT = 2592000000  -- ms: 30 days after the last revocation of the key
local TOMBSTONE = 30000       -- ms: how long a copy of the attempt's enter is refused
local function mark(owner, id, reason, what, permits, remains)
  local surplus = redis.call('XLEN', audit) - MARKS + 1
  if surplus > 0 then
    for _, entry in ipairs(redis.call('XRANGE', audit, '-', '+', 'COUNT', surplus)) do
      redis.call('HDEL', revoked, entry[2][2])
    end
  end
  local revoked_handle, seq = string.match(owner, '^([^.]+)%.(%d+)')
  local label = string.match(revoked_handle, '~(.*)$') or ''
  redis.call('XADD', audit, 'MAXLEN', MARKS, '*', 'id', id, 'what', what, 'permits', permits, 'label', label, 'remains', remains, 'reason', reason)
  redis.call('HSET', revoked, id, reason)
  redis.call('PEXPIREAT', audit, now + MARK_KEPT)
  redis.call('PEXPIREAT', revoked, now + MARK_KEPT)
  local receiver = revoked_handle
  -- include shared/inbox
  redis.call(publish, channel, 'R ' .. seq)
end
