-- Lists the schema as one that is in use until at (ms), for calls that must reach all schemas of the key.
local function list_schema(at)
  redis.call('ZADD', schemas, 'GT', at, schema)
  keep(schemas, at)
end
