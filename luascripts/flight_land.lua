-- flight_land: publish what a load came to. Only who holds the lease of a load
-- that no invalidation has touched may store; the lease is given back and the
-- waiters are told, all in this one step.
--
-- KEYS  holders, queue, alive, fence, value, failure, landed, aside
-- ARGV  1 member   2 token of the load
--       3 void     as in flight_leave
--       4 prefix, 5 suffix: the envelope; the server's time goes between them
--       6 keep     ms to keep it as the value; 0 = not at all, -1 = not at all,
--                  and the value that is there goes
--       7 remember ms to keep it as the failure; 0 = not at all
--
-- Reply (integers)  state, now µs, waiters left to tell
--   state 1 published; 2 invalidated meanwhile: handed to those who waited, not
--   stored; 0 the lease had ended: nothing done
--
-- Cost  O(log n), SET, and one PUBLISH to each process that waits, of which one
--       call tells 250: sent again, it tells the next ones.
-- Sent again after a lost reply it finds its own record in landed. Storing comes
-- before any other write: where memory has run out it is refused with nothing
-- done, and the caller sends it again with keep and remember = 0.

local time = redis.call('TIME')
local us = time[1] * 1000000 + time[2]
local now = math.floor(us / 1000)
-- include flight

local m, token, void = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
local store, remember = tonumber(ARGV[6]), tonumber(ARGV[7])
-- Reads of every key that is written later: a wrong type ends the script here.
local record = redis.call('GET', L)
redis.call('STRLEN', V)
redis.call('STRLEN', F)
redis.call('ZCARD', Q)
redis.call('ZCARD', A)

local mine, before, how = string.match(record or '', '^(%d+) (%d) (.)')
if mine == ARGV[2] then
  -- Larger results than RIDE don't ride, so neither do those of the second call.
  return { tonumber(before), us, tell(token, before == '1', how) }
end

local state, name = 0, nil
if tonumber(redis.call('ZSCORE', H, m) or 0) > now then
  state = 1
else
  name = m .. ' ' .. ARGV[2]
  if tonumber(redis.call('ZSCORE', S, name) or 0) > now then state = 2 end
end

local body = ARGV[4] .. string.format('%016.0f', us) .. ARGV[5]
if state == 1 then
  if store > 0 then redis.call('SET', V, body, 'PX', store) end
  if store < 0 then redis.call('DEL', V) end
  if remember > 0 then
    redis.call('SET', F, body, 'PX', remember)
  else
    redis.call('DEL', F)
  end
  redis.call('ZREM', H, m)
elseif state == 2 then
  redis.call('ZREM', S, name)
end
if void > now then
  redis.call('ZADD', A, void, m)
  keep(A, void)
end
if state == 0 then return { 0, us, 0 } end

-- S: it is the value. H: only those who waited get it. A: so too, and it was
-- invalidated meanwhile.
how = state == 2 and 'A' or store > 0 and 'S' or 'H'
purge()
local kept = how
if how ~= 'S' and waiting(token, state == 1) > 0 then kept = how .. body end
redis.call('SET', L, ARGV[2] .. ' ' .. state .. ' ' .. kept, 'PX', RECORD)
return { state, us, tell(token, state == 1, #body <= RIDE and how .. body or how) }
