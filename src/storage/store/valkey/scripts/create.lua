-- Creates an account. KEYS: account. ARGV: time (ms). Returns 1 if it is new, 0 if it exists already.
if redis.call('HEXISTS', KEYS[1], 'created') == 1 then return 0 end
redis.call('HSET', KEYS[1], 'created', ARGV[1], 'enabled', '1')
return 1
