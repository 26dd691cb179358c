-- Deletes an entry. KEYS: order, size, name. Returns whether an unexpired entry existed, and the total size.
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local thing, there = redis.call('HMGET', KEYS[3], 's', 'e'), 0
if thing[1] then
  if tonumber(thing[2]) > now then there = 1 end
  redis.call('DECRBY', KEYS[2], thing[1])
  redis.call('ZREM', KEYS[1], KEYS[3])
  redis.call('DEL', KEYS[3])
end
return {there, tonumber(redis.call('GET', KEYS[2]) or 0)}
