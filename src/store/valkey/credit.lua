-- Credits an account. KEYS: account, credits, references. ARGV: amount, note, reference, whether it has one.
if redis.call('HEXISTS', KEYS[1], 'enabled') == 0 then return {'unknown', '0'} end
if ARGV[4] == '1' then
    local given = redis.call('HGET', KEYS[3], ARGV[3])
    if given == ARGV[1] then return {'repeated', '0'} end
    if given then return {'reference', given} end
    redis.call('HSET', KEYS[3], ARGV[3], ARGV[1])
end
redis.call('HINCRBY', KEYS[1], 'credited', ARGV[1])
redis.call('HINCRBY', KEYS[1], 'available', ARGV[1])
redis.call('XADD', KEYS[2], '*', 'amount', ARGV[1], 'note', ARGV[2], 'reference', ARGV[3], 'has', ARGV[4])
return {'credited', '0'}
