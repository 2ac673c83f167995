-- Sets gone to the error to answer with if the attempt of owner, "<handle>.<seq>…", was revoked; false: it was
-- not. The script has found that the attempt neither holds nor waits, and may have written, so a key of a wrong
-- type has no marks. Hardly any call comes here, so the key of the marks is made here from the name of holders.
-- Concurrency: a revocation marks an attempt in the same step in which it takes its lease or its place away,
-- so an attempt that is gone for that reason has its mark.
local revoked_handle, revoked_seq = string.match(owner, '^([^.]+)%.(%d+)')
local marks = string.sub(holders, 1, string.find(holders, '}', 1, true) + 1) .. 'revoked'
local reason = redis.pcall('HGET', marks, string.sub(revoked_handle or '', 1, 8) .. '-' .. (revoked_seq or ''))
local gone = type(reason) == 'string' and { err = 'REVOKED ' .. string.gsub(reason, '%c', ' ') }
