-- Finds out whether this process may vote. The script has included the clock, and named born, a hash of the
-- family on this server:
--   run    the run id of the process that wrote the rest; '?': it could not be read
--   birth  when that process found itself without a memory (server µs). It names its abstention
--   fresh  1 = there was no memory at all, not even that of another process
--   votes  1 = it may vote
--   top    the highest token that was issued or told here
--   floor  every new token is above it
-- A process that has forgotten what it voted for could vote again, for another. So one without born, or with
-- the born of another process (an old snapshot), abstains for one TTL: then all votes that were forgotten
-- have expired. After that it votes once it was told a floor (look.lua). The question for the run id is slow,
-- so only a call that is sent in full asks it (ARGV[2] = 1): a new process knows no script, so its first call
-- is sent in full. This piece comes before every return of a script, since then it knows the script.
-- DEL comes first because it is allowed when memory has run out: without born, it abstains.
-- Concurrency: the first call of any client after the restart comes here. Each copy of it finds born as the
-- first one wrote it, and changes nothing.
local checks, ttl = ARGV[2] == '1', tonumber(ARGV[3])
local memory = redis.call('HMGET', born, 'run', 'birth', 'fresh', 'votes', 'top', 'floor')
if checks or not memory[1] or memory[1] == '?' then
  local info = redis.pcall('INFO', 'server')
  local text = type(info) == 'table' and info.err or info
  -- The embedded server for tests has no run id, and no process that is restarted.
  local process = string.match(text, 'run_id:(%x+)') or string.match(text, 'section %(server%) is not supported') and 'embedded'
  if not process or process ~= memory[1] then
    local fresh = not memory[1] or memory[1] == '?' and memory[3] == '1'
    memory = { process or '?', us, fresh and '1' or '0', '0', memory[5] or '0', '0' }
    redis.call('DEL', born)
    redis.call('HSET', born, 'run', memory[1], 'birth', us, 'fresh', memory[3], 'top', memory[5])
  end
  if not process then
    return { err = 'NOPERM a quorum needs the run id of the server, and INFO does not tell it: allow the user +info' }
  end
end
local run, birth, fresh, votes = memory[1], tonumber(memory[2]), memory[3] == '1', memory[4] == '1'
local top, floor = tonumber(memory[5] or 0), tonumber(memory[6] or 0)
local abstains = votes and 0 or math.max(0, math.floor(birth / 1000) + 1 + ttl - now)
