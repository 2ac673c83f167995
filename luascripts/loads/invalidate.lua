-- Drops the cached value and the remembered failure of a key, and takes the right to store from a running load.
-- The lease of that load moves to invalidated. There it can be renewed, and can hand its result to those that
-- wait for it. The next enter loads anew.
-- KEYS  as in keys, then near
-- ARGV  1 number of this call, under which readers acknowledge   2 handle that listens for that, and that drops
--       its own copy by itself. Both are left out if nobody listens: readers are then only listed.
-- Reply now, 1 if a load was running; then, where processes may serve copies: ms until the leases of the readers
--       that are not listed are over, and for each listed one the ms that its lease lasts; a string for each listed
--       reader: its handle; and a string for each other schema of the key that is in use: the caller runs this
--       script for each of these, too
-- Cost  TIME, GET, ZRANGE, ZCARD, three STRLEN, two ZRANGE, DEL, ZREM; two more writes if a load is running, and
--       a message per reader.
-- Concurrency: a load may be running, be about to publish, or have published; a stored result is dropped.
-- Another copy of this call only drops values that were loaded in between. A load of another schema that begins
-- after this call is not listed, and may store: it began after the invalidation was called. A reader of another
-- schema may register until this script runs for that schema, so each run lists the readers anew. Registrations
-- stay: another invalidation must wait for the same readers until they have dropped their copies.
-- include shared/clock, loads/shared/load, shared/keep, loads/shared/drop
local near = KEYS[10]
-- include loads/shared/readers
local rest, lasts, members, scores = list_readers(ARGV[2])
local running, others = drop()
if #members == 0 then return { us, running, unpack(others) } end
if ARGV[1] then tell_readers(members, scores, ARGV[1], ARGV[2]) end
local reply = { us, running, rest }
for _, list in ipairs({ lasts, members, others }) do
  for _, word in ipairs(list) do reply[#reply + 1] = word end
end
return reply
