-- include shared/constants
local PROBATION = 2000    -- ms: first term of a grant whose owner may be dead
local OVERDUE = 2500      -- ms of ALIVE left: a waiter with this or less (its sign is 2 s old) gets no grant
local SILENCE = 1600      -- ms of ALIVE left at which a first term ends: 2.9 s after the last sign
local RECALLED = 100      -- ms: how long the mark of a recall stands
local FEW = 10            -- waiters at the head that are looked at first if the head is overdue
local GRANTS = 64         -- the most that one call grants or refuses, because each is a message
local PARKED = 4503599627370496 -- 2^52: added to the ticket in the score of a parked waiter
