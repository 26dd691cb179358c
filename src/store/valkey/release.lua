-- Gives holds back. KEYS: account, holds, ends. ARGV: holds.
for _, hold in ipairs(ARGV) do
    local held = redis.call('HGET', KEYS[2], hold)
    if held then
        redis.call('HINCRBY', KEYS[1], 'available', held)
        redis.call('HDEL', KEYS[2], hold)
        redis.call('ZREM', KEYS[3], hold)
    end
end
return #ARGV
