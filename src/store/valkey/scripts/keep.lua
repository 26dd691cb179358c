-- Keeps things; the oldest make room. KEYS: order, size, count, then a name for each thing.
-- ARGV: lifetime (ms), most that all may count for; for each thing: what it counts for, its two parts.
local time = redis.call('TIME')
local ends = string.format('%.0f', time[1] * 1000 + math.floor(time[2] / 1000) + tonumber(ARGV[1]))
local function drop(name)
  redis.call('DECRBY', KEYS[2], redis.call('HGET', name, 's') or 0)
  redis.call('ZREM', KEYS[1], name)
  redis.call('DEL', name)
end
for i = 4, #KEYS do
  local name, at = KEYS[i], 3 * (i - 3)
  drop(name)
  redis.call('ZADD', KEYS[1], redis.call('INCR', KEYS[3]), name)
  redis.call('HSET', name, 's', ARGV[at], 'e', ends, 'a', ARGV[at + 1], 'b', ARGV[at + 2])
  redis.call('INCRBY', KEYS[2], ARGV[at])
end
while tonumber(redis.call('GET', KEYS[2])) > tonumber(ARGV[2]) do
  local oldest = redis.call('ZRANGE', KEYS[1], 0, 0)[1]
  if not oldest then
    redis.call('SET', KEYS[2], 0)
    break
  end
  drop(oldest)
end
return tonumber(redis.call('GET', KEYS[2]))
