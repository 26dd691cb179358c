-- Makes an account. KEYS: account. ARGV: time in milliseconds.
if redis.call('HEXISTS', KEYS[1], 'enabled') == 1 then return 0 end
redis.call('HSET', KEYS[1], 'enabled', '1', 'created', ARGV[1])
redis.call('HINCRBY', KEYS[1], 'available', 0)
redis.call('HINCRBY', KEYS[1], 'credited', 0)
redis.call('HINCRBY', KEYS[1], 'charged', 0)
return 1
