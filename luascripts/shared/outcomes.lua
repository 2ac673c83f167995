-- What this call has granted to waiters or refused them. The script has set handle, that of the caller.
-- Concurrency: the process that is told may be dead, or may ask at this moment. Processes also ask every 1.5 s.

-- The outcomes for waiters of the caller's own handle. Each has three numbers: sequence number, term (ms) or
-- minus the limit that refused it, token.
local own_outcomes = {}

-- Tells the process of a request the outcome: granted (outcome = term) or never to be served (outcome = -limit).
-- A waiter of the caller's own handle learns it from the reply, any other from a message.
local function tell(waiting_handle, seq, outcome, token)
  if waiting_handle == handle then
    local at = #own_outcomes
    own_outcomes[at + 1], own_outcomes[at + 2], own_outcomes[at + 3] = tonumber(seq), outcome, token
    return
  end
  local receiver = waiting_handle
  -- include shared/inbox
  redis.call(publish, channel, string.format('%s %.0f %d %.0f', seq, us, outcome, token))
end
