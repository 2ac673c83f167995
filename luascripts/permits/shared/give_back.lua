-- Gives permits back or leaves the queue, and hands free permits on. The script has included keys before.
-- Concurrency: the lease may have expired and been granted to another member, which keeps it: only the member
-- itself is taken out. The enter of this member may still be under way, so a tombstone stays behind. The next
-- owner may be dead, and its process may be asking at this moment: it finds the grant, or is told.
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
local held_without_copies = given_back > 0 and ARGV[3] == '0' -- then no tombstone is needed
if held_without_copies and redis.call('EXISTS', queue) == 0 then return { 1 } end
-- include permits/shared/constants, shared/clock
local handle = string.match(member, '^[^.]+')

-- The usual case of a lock: its next owner is surely alive. These few lines do the work of advance, because
-- the next owner waits for it. On a server that was idle for a millisecond, creating the closures of
-- queue.lua alone takes a sixth of the time.
if held_without_copies and fenced and redis.call('EXISTS', holders) == 0 then
  local head = redis.call('ZRANGE', queue, 0, 0)[1]
  local next_handle, seq, ttl = string.match(head, '^([^.]+)%.(%d+)%.1%.(%d+)%.1$')
  local alive_for = tonumber(redis.call('ZSCORE', alive, head) or 0) - now
  if next_handle and alive_for > OVERDUE then
    local term = tonumber(ttl)
    if next_handle ~= handle then term = math.min(term, PROBATION, alive_for - SILENCE) end
    -- include permits/shared/issue_token
    if not token then return { 1, us } end -- it is given back; the next ask tells the waiter why it gets nothing
    redis.call('ZADD', holders, now + term, head)
    redis.call('PEXPIREAT', holders, now + term)
    redis.call('ZREM', queue, head)
    redis.call('ZREM', alive, head)
    if next_handle == handle then return { 1, us, tonumber(seq), term, token } end
    local receiver = next_handle
    -- include shared/inbox
    redis.call(publish, channel, string.format('%s %.0f %d %.0f', seq, us, term, token))
    return { 1, us }
  end
end
-- include permits/shared/queue, shared/bury
local state, why = 0, nil
if given_back > 0 then
  state = 1
elseif redis.call('ZREM', queue, member) == 1 then
  redis.call('ZREM', alive, member)
  state = 2
else
  local owner = member
  -- include shared/why_gone
  why = gone
end
local copies_until = tonumber(ARGV[3])
if copies_until > now then bury(member, copies_until) end
