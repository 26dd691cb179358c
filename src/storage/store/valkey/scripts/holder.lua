-- Tells who has stored a response. KEYS: the entry of an account, the entry that names the account of the id.
-- ARGV: the account. Returns 0 = no account, 1 = that account, 2 = another one.
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
if tonumber(redis.call('HGET', KEYS[1], 'e') or 0) > now then return 1 end
local holder = redis.call('HMGET', KEYS[2], 'e', 'a')
if tonumber(holder[1] or 0) > now and holder[2] ~= ARGV[1] then return 2 end
return 0
