-- How long a handle is registered as one that may keep leases of a key. A handle that has had no answer for 2
-- s keeps nothing, so a registration that has ended misses nobody.
-- Concurrency: registrations are counted by the server's clock from the call that made them, which ran after
-- the handle sent it, and the 2 s by the handle's clock from that sending.
local KEEPER = 2500 -- ms
