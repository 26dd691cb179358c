-- Reads a task. KEYS: task. Returns its fields; empty if it does not exist.
local task = redis.call('HMGET', KEYS[1], 'o', 'i', 'v', 'f', 's')
return task[1] and task or {}
