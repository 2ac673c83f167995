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
-- Cost  nobody waits: ZREM, EXISTS. Else O(log n) and one message per grant.
-- Who else may be where: the lease may have expired and been granted to another
-- member (which stays as it is); the enter of this member may still be under way
-- (tombstone); the next owner may be dead (probation, see advance).
-- ZREM comes first: it is allowed where memory has run out, and the checks of
-- the memory limit end with a script's first write.

-- include permits/shared/keys
-- include permits/shared/give_back
advance()
return with_own_outcomes({ state, us })
