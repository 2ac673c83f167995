-- Publishes the result of a load. Only the holder of the lease of a load that was not invalidated may store. The
-- result is stored, the lease given back and the waiters told in one atomic step.
-- KEYS  as in keys
-- ARGV  1 member   2 token of the load   3 copies_until
--       4 prefix, 5 suffix  the envelope; the server's time goes between them
--       6 store  ms to keep it as the value; 0 = do not store; -1 = do not store, and drop the value that is there
--       7 remember  ms to keep it as the failure; 0 = do not
-- Reply state, now, waiters left to tell: 1 published; 2 invalidated in the meantime: handed to those that waited,
--       not stored; 0 the lease had ended: nothing done
-- Cost  O(log n), SET, and one message per waiting process. One call tells 250 of them; sent again, the next ones.
-- Concurrency: an invalidation may have run (state 2). The lease may have expired, and another member may load
-- (state 0). Another copy of this call may have run; this one finds its record in published.
-- Storing comes before any other write. If memory has run out, it is refused with nothing done, and the caller
-- sends the call again with store and remember = 0.
local RECORD_KEPT = 5000  -- ms: how long published is kept; waiters ask sooner than that
local MAX_INLINE = 4096   -- bytes: larger results are not sent within messages
-- include shared/clock, loads/shared/load, shared/keep, shared/purge_waiters, shared/bury
-- include loads/shared/list_schema
local member, token, copies_until = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
local store, remember = tonumber(ARGV[6]), tonumber(ARGV[7])
-- Read every key that is written later: a wrong type ends the script here.
local record = redis.call('GET', published)
for _, text in ipairs({ value, failure }) do redis.call('STRLEN', text) end
for _, set in ipairs({ queue, alive, schemas }) do redis.call('ZCARD', set) end

local recorded_token, recorded_state, how = string.match(record or '', '^(%d+) (%d) (.)')
if recorded_token == ARGV[2] then
  -- The messages of a repeated call carry no envelope: processes fetch the result.
  return { tonumber(recorded_state), us, tell(token, recorded_state == '1', how) }
end

local state, entry = 0, nil
if tonumber(redis.call('ZSCORE', holders, member) or 0) > now then
  state = 1
else
  entry = member .. ' ' .. ARGV[2]
  if tonumber(redis.call('ZSCORE', invalidated, entry) or 0) > now then state = 2 end
end

local envelope = ARGV[4] .. string.format('%016.0f', us) .. ARGV[5]
if state == 1 then
  if store > 0 then redis.call('SET', value, envelope, 'PX', store) end
  if store < 0 then redis.call('DEL', value) end
  if remember > 0 then
    redis.call('SET', failure, envelope, 'PX', remember)
  else
    redis.call('DEL', failure)
  end
  if math.max(store, remember) > 0 then list_schema(now + math.max(store, remember)) end
  redis.call('ZREM', holders, member)
elseif state == 2 then
  redis.call('ZREM', invalidated, entry)
end
if copies_until > now then bury(member, copies_until) end
if state == 0 then return { 0, us, 0 } end

-- S: the result is the value. H: only those that waited get it. A: like H, and it was invalidated meanwhile.
how = state == 2 and 'A' or store > 0 and 'S' or 'H'
purge_waiters()
local kept = how
if how ~= 'S' and count_waiters(token, state == 1) > 0 then kept = how .. envelope end
redis.call('SET', published, ARGV[2] .. ' ' .. state .. ' ' .. kept, 'PX', RECORD_KEPT)
return { state, us, tell(token, state == 1, #envelope <= MAX_INLINE and how .. envelope or how) }
