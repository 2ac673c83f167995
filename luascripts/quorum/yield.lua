-- Lets a live waiter with an earlier ticket have the vote of a member that has no majority. The member goes back
-- to its place in the queue.
-- KEYS  as in keys
-- ARGV  1 member, 2 checks, 3 ttl, 4 void_from as in enter
-- Reply 2, now, 0, 0 it has yielded, and waits; 1, now, remaining, fence it keeps the vote: nobody waits with an
--       earlier ticket; 0|6, now, 0, 0 it has no vote here; void
-- Cost  O(log n).
-- Concurrency: a copy of this call may run later, when the member has the vote again, and give it away once
-- more. So its client counts this vote only once the yield is answered, or void. The yield of a member whose
-- vote has expired finds nothing.
-- include quorum/shared/constants, quorum/shared/keys, shared/clock, quorum/shared/process
local member, void_from = ARGV[1], tonumber(ARGV[4])
local caller = member
-- include quorum/shared/queue
local expiry = tonumber(redis.call('ZSCORE', holders, member) or 0)
if us >= void_from then return { 6, us, 0, 0 } end
if expiry <= now or not votes then return { 0, us, 0, 0 } end
if not comes_after(member, first_waiter()) then return { 1, us, expiry - now, last_token() or 0 } end
redis.call('ZREM', holders, member) -- first, because it is allowed when memory has run out
enqueue(member, ticket_of(member), ALIVE)
advance()
return { 2, us, 0, 0 }
