-- What precedes the handle in the name of its inbox. A key starts with
-- "<prefix>:<kind>:{", and every kind has three letters.
local inbox = string.sub(holders, 1, string.find(holders, '{', 1, true) - 6) .. ':inbox:'
