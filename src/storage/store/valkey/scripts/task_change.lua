-- Replaces a task's state if its version matches. KEYS: task, due. ARGV: version, state, due (ms from now; '' = never).
if redis.call('HGET', KEYS[1], 'v') ~= ARGV[1] then return 0 end
redis.call('HSET', KEYS[1], 's', ARGV[2])
redis.call('HINCRBY', KEYS[1], 'v', 1)
if ARGV[3] == '' then
  redis.call('ZREM', KEYS[2], KEYS[1])
else
  local time = redis.call('TIME')
  local now = time[1] * 1000 + math.floor(time[2] / 1000)
  redis.call('ZADD', KEYS[2], string.format('%.0f', now + tonumber(ARGV[3])), KEYS[1])
end
return 1
