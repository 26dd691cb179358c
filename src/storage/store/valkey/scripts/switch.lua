-- Enables or disables an account. KEYS: account. ARGV: 1 or 0. Returns the previous state; '' if it does not exist.
if redis.call('HEXISTS', KEYS[1], 'created') == 0 then return '' end
local before = redis.call('HGET', KEYS[1], 'enabled')
redis.call('HSET', KEYS[1], 'enabled', ARGV[1])
return before
