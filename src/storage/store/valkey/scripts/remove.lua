-- Deletes an entry. KEYS: order, size, name, and the names of entries that are deleted with it.
-- Returns whether an unexpired entry existed, and the total size.
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local there = 0
for i = 3, #KEYS do
  local thing = redis.call('HMGET', KEYS[i], 's', 'e')
  if i == 3 and not thing[1] then break end
  if i == 3 and tonumber(thing[2]) > now then there = 1 end
  redis.call('DECRBY', KEYS[2], thing[1] or 0)
  redis.call('ZREM', KEYS[1], KEYS[i])
  redis.call('DEL', KEYS[i])
end
return {there, tonumber(redis.call('GET', KEYS[2]) or 0)}
