-- include shared/constants
local PROBATION = 2000    -- ms: first term of a grant whose owner may be dead
local OVERDUE = 2500      -- ms of ALIVE left: a waiter whose sign is older than 2 s gets no grant
local FENCE_KEPT = 86400000 -- ms: how long the last token is kept
