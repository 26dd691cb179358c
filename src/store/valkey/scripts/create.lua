-- Makes an account. KEYS: account. ARGV: time (ms). Tells whether there was none.
if redis.call('HEXISTS', KEYS[1], 'created') == 1 then return 0 end
redis.call('HSET', KEYS[1], 'created', ARGV[1], 'enabled', '1')
return 1
