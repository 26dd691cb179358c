-- Deletes expired entries, the oldest first. KEYS: order, size. ARGV: maximum number.
-- Returns the number of deleted entries and the total size.
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local removed = 0
for _, name in ipairs(redis.call('ZRANGE', KEYS[1], 0, ARGV[1] - 1)) do
  local thing = redis.call('HMGET', name, 's', 'e')
  if thing[2] and tonumber(thing[2]) > now then break end
  redis.call('DECRBY', KEYS[2], thing[1] or 0)
  redis.call('ZREM', KEYS[1], name)
  redis.call('DEL', name)
  removed = removed + 1
end
return {removed, tonumber(redis.call('GET', KEYS[2]) or 0)}
