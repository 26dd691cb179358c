-- Stores entries and evicts the oldest ones. KEYS: order, size, count, then the name of each entry.
-- ARGV: lifetime (ms), maximum total size, 1 = an unexpired entry with another first value stays as it is;
--   for each entry: size, its two values. Returns the total size.
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local ends = string.format('%.0f', now + tonumber(ARGV[1]))
local function drop(name)
  redis.call('DECRBY', KEYS[2], redis.call('HGET', name, 's') or 0)
  redis.call('ZREM', KEYS[1], name)
  redis.call('DEL', name)
end
for i = 4, #KEYS do
  local name, at = KEYS[i], 3 * (i - 3) + 1
  local same = redis.call('HGET', name, 'a') == ARGV[at + 1]
  if ARGV[3] ~= '1' or same or tonumber(redis.call('HGET', name, 'e') or 0) <= now then
    drop(name)
    redis.call('ZADD', KEYS[1], redis.call('INCR', KEYS[3]), name)
    redis.call('HSET', name, 's', ARGV[at], 'e', ends, 'a', ARGV[at + 1], 'b', ARGV[at + 2])
    redis.call('INCRBY', KEYS[2], ARGV[at])
  end
end
while tonumber(redis.call('GET', KEYS[2]) or 0) > tonumber(ARGV[2]) do
  local oldest = redis.call('ZRANGE', KEYS[1], 0, 0)[1]
  if not oldest then
    redis.call('SET', KEYS[2], 0)
    break
  end
  drop(oldest)
end
return tonumber(redis.call('GET', KEYS[2]) or 0)
