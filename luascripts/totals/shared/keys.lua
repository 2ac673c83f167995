-- holders  sorted set: a member per held permit of any key, score = expiry (ms)
-- places   sorted set: the same members, score 0, in the order of their keys: those of a key are a range
-- queue    sorted set: a member per waiter, score = ticket (µs)
-- line     sorted set, score 0: "<key>:<ticket>:<rest of the member>" per waiter that is not parked, so that the
--          first waiter of a key is the first of a range
-- alive    sorted set: as in permits
-- ready    sorted set: the keys that have a waiter and room under their own limit, score = start tag
-- turns    sorted set: "" = the virtual time; a key = its finish tag, while it is not in ready; a member = since
--          when it holds others up; ":" and ":<key>" = a charge for that
-- limits   hash, the only key without an expiry: a key = its limit, "" = the total, as set at run time
local holders, places, queue, line = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local alive, ready, turns, limits = KEYS[5], KEYS[6], KEYS[7], KEYS[8]
