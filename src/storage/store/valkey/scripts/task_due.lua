-- Claims due tasks: each is due again when its lease ends. KEYS: due. ARGV: lease (ms), maximum. Returns their fields.
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local found = {}
for _, name in ipairs(redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', string.format('%.0f', now), 'LIMIT', 0, ARGV[2])) do
  local task = redis.call('HMGET', name, 'o', 'i', 'v', 'f', 's')
  if task[1] then
    redis.call('ZADD', KEYS[1], string.format('%.0f', now + tonumber(ARGV[1])), name)
    found[#found + 1] = task
  else
    -- The task has expired.
    redis.call('ZREM', KEYS[1], name)
  end
end
return found
