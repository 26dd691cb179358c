-- Holds that their gateway still needs live on. KEYS: ends. ARGV: lifetime in milliseconds, holds.
local time = redis.call('TIME')
local ends = time[1] * 1000 + math.floor(time[2] / 1000) + ARGV[1]
for i = 2, #ARGV do
    redis.call('ZADD', KEYS[1], 'XX', ends, ARGV[i])
end
return #ARGV - 1
