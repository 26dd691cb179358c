-- Deletes a task and its idempotency key. KEYS: task, due. Returns whether it existed.
local mark = redis.call('HGET', KEYS[1], 'k')
if not mark then return 0 end
if mark ~= '' and redis.call('GET', mark) == redis.call('HGET', KEYS[1], 'i') then redis.call('DEL', mark) end
redis.call('ZREM', KEYS[2], KEYS[1])
redis.call('DEL', KEYS[1])
return 1
