-- Sets the channel for a message to the process of the handle receiver. If '@' follows the 22 random
-- characters of a handle, its client is a Cluster client. It listens on a sharded channel in the slot of the
-- key, "<prefix>:<kind>:{<name>:<key>}:inbox:<handle>", because a message on any other channel would cross
-- the bus to every node. Any other handle has one channel for all keys, "<prefix>:inbox:<handle>". The code
-- relies on the fact that every kind has three letters.
local publish, channel
if string.byte(receiver, 23) == 64 then
  publish, channel = 'SPUBLISH', string.sub(holders, 1, string.find(holders, '}', 1, true) + 1) .. 'inbox:' .. receiver
else
  publish, channel = 'PUBLISH', string.sub(holders, 1, string.find(holders, '{', 1, true) - 6) .. ':inbox:' .. receiver
end
