-- Makes a key live until at (ms). It never shortens the key's life.
local function keep(key, at)
  if redis.call('PEXPIREAT', key, at, 'GT') == 0 and redis.call('PTTL', key) == -1 then
    redis.call('PEXPIREAT', key, at)
  end
end
