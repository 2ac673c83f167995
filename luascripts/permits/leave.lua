-- Gives permits back or leaves the queue, whichever the member's state needs, and
-- hands what is free to the next waiters. Idempotent by member; never touches the
-- permit of another member.
--
-- KEYS  holders, queue, alive, limit (or fence, where fenced)
-- ARGV  1 member   2 permits, 0 = one, fenced: grants issue a token from fence
--       3 copies_until  server ms until which a copy of this member's enter may
--                       still arrive; 0 = none can. A tombstone refuses it.
--
-- Reply (integers)
--   1                 given back, and nobody waits
--   1|2|0, now µs     given back; was queued; was neither
--   followed by (seq, term ms or -limit, token) for each waiter of the same
--   handle that this call granted to or refused, and by (0, 0, 0) where this call
--   stopped at a bound: sent again at once, it goes on.
--
-- Cost  nobody waits: ZREM, EXISTS. Else O(log n) and one PUBLISH per grant.
-- Who else may be where: the lease may have expired and been granted to another
-- member (which stays as it is); the enter of this member may still be under way
-- (tombstone); the next owner may be dead (probation, see advance).
-- ZREM comes first: it is allowed where memory has run out, and the checks of
-- the memory limit end with a script's first write.

-- include permits/shared/keys
local member = ARGV[1]
local given_back
local fenced = ARGV[2] == '0'
if fenced or ARGV[2] == '1' then
  given_back = redis.call('ZREM', holders, member)
else
  local all = { member }
  for i = 2, tonumber(ARGV[2]) do all[i] = member .. '+' .. i end
  given_back = redis.call('ZREM', holders, unpack(all))
end
local held_without_copies = given_back > 0 and ARGV[3] == '0' -- so that no tombstone is needed
if held_without_copies and redis.call('EXISTS', queue) == 0 then return { 1 } end

-- include permits/shared/constants
-- include shared/clock
local handle = string.match(member, '^[^.]+')

-- A lock whose next owner is surely alive, which is the rule: the work of advance,
-- in a line. The next owner waits for it, and on a server that was idle for a
-- millisecond making the closures of the queue alone takes a sixth of the time.
if held_without_copies and fenced and redis.call('EXISTS', holders) == 0 then
  local head = redis.call('ZRANGE', queue, 0, 0)[1]
  local next_handle, seq, ttl = string.match(head, '^([^.]+)%.(%d+)%.1%.(%d+)%.1$')
  local alive_for = tonumber(redis.call('ZSCORE', alive, head) or 0) - now
  if next_handle and alive_for > OVERDUE then
    local term = tonumber(ttl)
    if next_handle ~= handle then term = math.min(term, PROBATION, alive_for - SILENCE) end
    -- include permits/shared/issue_token
    redis.call('ZADD', holders, now + term, head)
    redis.call('PEXPIREAT', holders, now + term)
    redis.call('ZREM', queue, head)
    redis.call('ZREM', alive, head)
    if next_handle == handle then return { 1, us, tonumber(seq), term, token } end
    -- include shared/inbox
    redis.call('PUBLISH', inbox .. next_handle, string.format('%s %.0f %d %.0f', seq, us, term, token))
    return { 1, us }
  end
end
-- include permits/shared/queue
-- include shared/bury

local state = 0
if given_back > 0 then
  state = 1
elseif redis.call('ZREM', queue, member) == 1 then
  redis.call('ZREM', alive, member)
  state = 2
end
local copies_until = tonumber(ARGV[3])
if copies_until > now then bury(member, copies_until) end
advance()
return with_own_outcomes({ state, us })
