-- Holds an amount. KEYS: account, holds, ends. ARGV: amount, hold, lifetime in milliseconds.
-- Numbers of Lua are not exact beyond 2^53, and those of Valkey are: only the sign of a sum is looked at here.
local enabled = redis.call('HGET', KEYS[1], 'enabled')
if not enabled then return {'unknown', '0'} end
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
-- What gateways held that have ended.
for _, hold in ipairs(redis.call('ZRANGEBYSCORE', KEYS[3], '-inf', now, 'LIMIT', 0, 64)) do
    local held = redis.call('HGET', KEYS[2], hold)
    if held then
        redis.call('HINCRBY', KEYS[1], 'available', held)
        redis.call('HDEL', KEYS[2], hold)
    end
    redis.call('ZREM', KEYS[3], hold)
end
if enabled ~= '1' then return {'disabled', '0'} end
-- A reservation that is asked for again, because the answer was lost, is held once.
if ARGV[1] ~= '0' and redis.call('HEXISTS', KEYS[2], ARGV[2]) == 0 then
    local left = redis.call('HINCRBY', KEYS[1], 'available', '-' .. ARGV[1])
    if left < 0 then
        redis.call('HINCRBY', KEYS[1], 'available', ARGV[1])
        return {'empty', redis.call('HGET', KEYS[1], 'available')}
    end
    redis.call('HSET', KEYS[2], ARGV[2], ARGV[1])
    redis.call('ZADD', KEYS[3], now + ARGV[3], ARGV[2])
end
return {'held', redis.call('HGET', KEYS[1], 'available')}
