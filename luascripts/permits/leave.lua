-- Gives permits back or leaves the queue, depending on the member's state, and hands free permits to the next
-- waiters. Idempotent by member. It never touches a permit of another member.
-- KEYS  holders, queue, alive, limit (or fence, if fenced)
-- ARGV  1 member   2 permits; 0 = one, fenced: grants issue a token from fence   3 copies_until
-- Reply 1   given back, and nobody waits
--       1|2|0, now   given back; was queued; was neither. Then outcomes
-- Cost  if nobody waits: ZREM, EXISTS. Otherwise O(log n) and one message per grant.
-- Concurrency: the lease may have expired and been granted to another member, which keeps it. The enter of this
-- member may still be under way (tombstone). The next owner may be dead (probation, see advance).
-- include permits/shared/keys, permits/shared/give_back
advance()
return why or with_own_outcomes({ state, us })
