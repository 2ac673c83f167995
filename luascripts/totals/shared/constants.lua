local MOST_GRANTS = 32    -- requests: the most that one call grants to
local MOST_STEPS = 125    -- waiters: the most that one call looks at
local MOST_PURGED = 64    -- members: the most expired ones that one call drops
local HELD_UP = 1000      -- ms: how long a request that does not fit holds the others up
local MOST_ASIDE = 8      -- times HELD_UP: the longest time for which such a request then stands aside
local HOLDS = 1125899906842624 -- 2^50, above all tags: added to the marks of requests that hold the others up
