local BATCH = 250         -- most that one call purges, grants, or passes over
local PROBATION = 2000    -- ms: first term of a grant whose owner may be dead
local ALIVE = 4500        -- ms: how long a sign of life keeps a place in the queue
local OVERDUE = 2500      -- ms of ALIVE left: older signs than 2 s get no grant
local FENCE = 86400000    -- ms: how long the last token is kept
