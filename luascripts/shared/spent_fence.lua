-- Returns the error for a fence that is set to value: no greater token can be issued.
local function spent_fence(value)
  local shown = string.gsub(string.sub(value, 1, 40), '%c', ' ')
  return { err = 'FENCESPENT ' .. fence .. ' is ' .. shown .. ': no greater token can be issued; delete the key' }
end
