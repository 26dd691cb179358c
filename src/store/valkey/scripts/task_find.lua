-- Finds a task. KEYS: task. Returns its parts; nothing, where there is none.
local task = redis.call('HMGET', KEYS[1], 'o', 'i', 'v', 'f', 's')
return task[1] and task or {}
