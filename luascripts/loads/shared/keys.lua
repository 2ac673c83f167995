-- holders      sorted set: the member that loads, score = lease end (ms)
-- queue        sorted set: a member per waiting process, score = the token of the load that it waits for
-- alive        sorted set: as in permits
-- fence        string: the token of the last load
-- value        string: the envelope of the cached value
-- failure      string: the envelope of a remembered failure, or of the mark that the value is too large
-- published    string: "<token> <state> <how>[envelope]", the last load's result, for processes that missed the message
-- invalidated  sorted set: "<member> <token>" of loads that were invalidated, score = lease end (ms): such a load
--              may hand its result to those that wait for it, but may not store it
-- schemas      sorted set: the schemas of the key that have a value, a failure or a load, score = until when (ms).
--              All schemas share this key. The other keys belong to one schema each, and their names end with it,
--              as ".1a2b3c4d". The keys of schema 0 have no such ending.
local holders, queue, alive, fence, value, failure, published, invalidated, schemas = unpack(KEYS)
local schema = string.match(holders, '%.(%x+)$') or '0'
