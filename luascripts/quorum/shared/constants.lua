-- include shared/constants
local PROBATION = 2000      -- ms: first term of a vote whose owner may be dead
local OVERDUE = 2500        -- ms of ALIVE left: a waiter with this or less gets no vote
local SILENCE = 1600        -- ms of ALIVE left at which a first term ends
local FEW = 10              -- waiters at the head that are looked at first
local FENCE_KEPT = 86400000 -- ms: how long the last token is kept
local LEAD = 2000000        -- µs: how far a client's token may be ahead of this server's clock
local FIRST = 2^52          -- less than its ticket: the place of a member with a majority of the votes
