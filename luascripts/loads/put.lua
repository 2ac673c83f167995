-- Stores a value that no load has made: an invalidation and a publication in one step. The cached value and
-- failure are dropped, and a running load may not overwrite the new value.
-- KEYS  as in keys, then near
-- ARGV  1 void_from   2 prefix, 3 suffix  the envelope; the server's time goes between them   4 store  ms to keep it
--       5 number, 6 handle  as in invalidate
-- Reply 1, now; or 6, now: it was void, and did nothing; then, where processes may serve copies, as in invalidate;
--       and a string for each other schema of the key that is in use: the caller invalidates these
-- Cost  the cost of invalidate, SET, ZADD and PEXPIREAT.
-- Concurrency: as in invalidate. Of two puts the later one stays. The caller sends a put again only if it surely
-- did not run. Otherwise a copy that arrives late could undo another put that was answered in the meantime.
-- void_from bounds how late a copy can arrive that the caller gave up.
-- SET comes first: if memory has run out, it is refused with nothing done. drop then removes everything that is
-- older, and the value with it, so the value is set again after drop.
-- include shared/clock
local void_from, store = tonumber(ARGV[1]), tonumber(ARGV[4])
if us >= void_from then return { 6, us } end
-- include loads/shared/load, shared/keep, loads/shared/drop, loads/shared/list_schema
local near = KEYS[10]
-- include loads/shared/readers
local envelope = ARGV[2] .. string.format('%016.0f', us) .. ARGV[3]
-- Read every key that is written later: a wrong type ends the script here.
for _, text in ipairs({ value, fence, failure, published }) do redis.call('STRLEN', text) end
for _, set in ipairs({ holders, invalidated, schemas }) do redis.call('ZCARD', set) end
local rest, lasts, members, scores = list_readers(ARGV[6])
redis.call('SET', value, envelope, 'PX', store)
local _, others = drop()
redis.call('SET', value, envelope, 'PX', store)
list_schema(now + store)
if #members == 0 then return { 1, us, unpack(others) } end
if ARGV[5] then tell_readers(members, scores, ARGV[5], ARGV[6]) end
local reply = { 1, us, rest }
for _, list in ipairs({ lasts, members, others }) do
  for _, word in ipairs(list) do reply[#reply + 1] = word end
end
return reply
