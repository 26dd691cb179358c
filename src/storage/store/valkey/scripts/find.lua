-- Reads entries. KEYS: their names. ARGV: the name of one value, or nothing for both.
-- Returns the values of each entry; empty if it does not exist or has expired.
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local found = {}
for i, name in ipairs(KEYS) do
  if tonumber(redis.call('HGET', name, 'e') or 0) <= now then
    found[i] = {}
  elseif ARGV[1] then
    found[i] = {redis.call('HGET', name, ARGV[1])}
  else
    found[i] = redis.call('HMGET', name, 'a', 'b')
  end
end
return found
