-- Reads entries. KEYS: their names. Returns two values for each; empty if it does not exist or has expired.
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local found = {}
for i, name in ipairs(KEYS) do
  local thing = redis.call('HMGET', name, 'e', 'a', 'b')
  found[i] = thing[1] and tonumber(thing[1]) > now and {thing[2], thing[3]} or {}
end
return found
