-- Stores a new task, unless another one has its idempotency key. KEYS: task, due, and the idempotency key if present.
-- ARGV: owner, id, lifetime (ms), due (ms from now), facts, state, lifetime of the idempotency key (ms).
-- Returns the id of the task that has the key already, otherwise ''.
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
if KEYS[3] then
  local known = redis.call('GET', KEYS[3])
  if known then return known end
  if tonumber(ARGV[7]) > 0 then redis.call('SET', KEYS[3], ARGV[2], 'PX', ARGV[7]) end
end
if tonumber(ARGV[3]) > 0 then
  redis.call('HSET', KEYS[1], 'o', ARGV[1], 'i', ARGV[2], 'v', '0', 'f', ARGV[5], 's', ARGV[6], 'k', KEYS[3] or '')
  redis.call('PEXPIRE', KEYS[1], ARGV[3])
  redis.call('ZADD', KEYS[2], string.format('%.0f', now + tonumber(ARGV[4])), KEYS[1])
end
return ''
