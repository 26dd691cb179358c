-- Charges what one journal has for one account, once. KEYS: account, holds, ends, records, sums.
-- ARGV: journal, milliseconds that records are kept; then for each frame, in order: number, hold, cost, record, day and
-- names, count of sums, and the sums as names and values.
local journal = 'journal ' .. ARGV[1]
local last = tonumber(redis.call('HGET', KEYS[1], journal) or '0')
local there = redis.call('HEXISTS', KEYS[1], 'enabled') == 1
local at, done = 3, 0
while at <= #ARGV do
    local number, hold, cost, record, names = tonumber(ARGV[at]), ARGV[at + 1], ARGV[at + 2], ARGV[at + 3], ARGV[at + 4]
    local sums = tonumber(ARGV[at + 5])
    at = at + 6
    if number > last then
        if hold ~= '' then
            local held = redis.call('HGET', KEYS[2], hold)
            if held then
                redis.call('HINCRBY', KEYS[1], 'available', held)
                redis.call('HDEL', KEYS[2], hold)
                redis.call('ZREM', KEYS[3], hold)
            end
        end
        if cost ~= '0' and there then
            redis.call('HINCRBY', KEYS[1], 'available', '-' .. cost)
            redis.call('HINCRBY', KEYS[1], 'charged', cost)
        end
        redis.call('XADD', KEYS[4], '*', 'r', record)
        for i = at, at + 2 * sums - 2, 2 do
            redis.call('HINCRBY', KEYS[5], names .. ARGV[i], ARGV[i + 1])
        end
        last = number
        done = done + 1
    end
    at = at + 2 * sums
end
if done > 0 then
    redis.call('HSET', KEYS[1], journal, string.format('%.0f', last))
    local oldest = redis.call('TIME')[1] * 1000 - ARGV[2]
    if oldest > 0 then redis.call('XTRIM', KEYS[4], 'MINID', '~', string.format('%.0f', oldest)) end
end
return done
