-- Gives permits back or leaves the queue, depending on the member's state, and hands free
-- permits to the next waiters. Idempotent by member. It never touches a permit of another
-- member.
--
-- KEYS  holders, queue, alive, limit (or fence, if fenced)
-- ARGV  1 member   2 permits; 0 = one, fenced: grants issue a token from fence
--       3 copies_until  server ms until which a copy of this member's enter may still
--                       arrive, 0 = none can. A tombstone refuses it.
--
-- Reply (integers)
--   1                 given back, and nobody waits
--   1|2|0, now µs     given back; was queued; was neither
--   error REVOKED <reason>  it was neither, because it was revoked
--   followed by (seq, term ms or -limit, token) for each waiter of the same handle that
--   this call granted to or refused, and by (0, 0, 0) if this call stopped at a bound:
--   sent again at once, it continues.
--
-- Cost  if nobody waits: ZREM, EXISTS. Otherwise O(log n) and one message per grant.
--
-- Concurrency: the lease may have expired and been granted to another member, which keeps it.
-- The enter of this member may still be under way (tombstone). The next owner may be dead
-- (probation, see advance).
--
-- ZREM comes first because it is allowed when memory has run out. Redis checks the memory
-- limit only until the first write of a script.

-- include permits/shared/keys
-- include permits/shared/give_back
advance()
return why or with_own_outcomes({ state, us })
