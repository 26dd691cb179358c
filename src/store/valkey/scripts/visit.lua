-- One visit of a gateway to an account: charges what it brings, sets aside what it keeps, grants what it asks for.
-- Money never goes through a Lua number, which is a double: it is added by HINCRBY and compared as text.
-- KEYS: account, leases, their ends, journal's last number; then three for each day: sums, records, sums of its month.
-- ARGV: gateway, life of leases (ms), number of the visit, lease that it keeps, number that the journal stands at
--   ('' = nothing is brought), last number that is brought, charge, life of the journal's number (ms), days;
--   for each day: end of its records (s), block of records, fields; for each field: name, amount; end of the sums of
--   the month (s), fields of the day and the month; for each of these: name, amount;
--   then needs, and for each need: amount; then what is wanted beyond.
local account, leases, ends, journal = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local me = ARGV[1]

-- Whether a (not negative) is at most b.
local function fits(a, b)
  if string.byte(b, 1) == 45 then return false end
  if #a ~= #b then return #a < #b end
  return a <= b
end
-- A sum stays at the largest number rather than fail in the middle of a script.
local function grow(name, field, amount)
  if amount == '0' then return end
  local sum = redis.pcall('HINCRBY', name, field, amount)
  if type(sum) == 'table' and sum.err then
    redis.call('HSET', name, field, string.byte(amount, 1) == 45 and '-9223372036854775808' or '9223372036854775807')
  end
end
local function add(field, amount)
  grow(account, field, amount)
end
local function take(amount)
  if amount ~= '0' then grow(account, 'free', '-' .. amount) end
end

-- One that was sent over a connection that was given up, and comes behind a later one, would undo that one.
local seen = string.match(redis.call('HGET', ends, me) or '', ':(%d+)$')
if seen and tonumber(ARGV[3]) < tonumber(seen) then return {'late'} end

local at = 9
if ARGV[5] ~= '' then
  local stands = redis.call('GET', journal) or '0'
  if stands ~= ARGV[5] then return {'gap', stands} end
  redis.call('SET', journal, ARGV[6], 'PX', ARGV[8])
  add('charged', ARGV[7])
  take(ARGV[7])
  for day = 1, tonumber(ARGV[9]) do
    local sums, records, month = KEYS[2 + 3 * day], KEYS[3 + 3 * day], KEYS[4 + 3 * day]
    if ARGV[at + 2] ~= '' then
      redis.call('RPUSH', records, ARGV[at + 2])
      redis.call('EXPIREAT', records, ARGV[at + 1])
    end
    local fields = tonumber(ARGV[at + 3])
    at = at + 3
    for _ = 1, fields do
      grow(sums, ARGV[at + 1], ARGV[at + 2])
      at = at + 2
    end
    local ending, spent = ARGV[at + 1], tonumber(ARGV[at + 2])
    at = at + 2
    for _ = 1, spent do
      grow(sums, ARGV[at + 1], ARGV[at + 2])
      grow(month, ARGV[at + 1], ARGV[at + 2])
      at = at + 2
    end
    if spent > 0 then redis.call('EXPIREAT', month, ending) end
  end
end

local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
-- What gateways hold that have not been here for so long can be spent again.
local all = redis.call('HGETALL', ends)
for i = 1, #all, 2 do
  if all[i] ~= me and tonumber(string.match(all[i + 1], '^%d+')) <= now then
    add('free', redis.call('HGET', leases, all[i]) or '0')
    redis.call('HDEL', leases, all[i])
    redis.call('HDEL', ends, all[i])
  end
end

local before = redis.call('HGET', leases, me) or '0'
if before ~= ARGV[4] then
  add('free', before)
  take(ARGV[4])
  redis.call('HSET', leases, me, ARGV[4])
end

local state = 'unknown'
if redis.call('HEXISTS', account, 'created') == 1 then
  state = redis.call('HGET', account, 'enabled') == '1' and 'enabled' or 'disabled'
end
local granted, all_granted = {}, true
local needs = tonumber(ARGV[at + 1])
at = at + 1
if state == 'enabled' then
  for i = 1, needs do
    local need = ARGV[at + i]
    if need == '0' or fits(need, redis.call('HGET', account, 'free') or '0') then
      take(need)
      if need ~= '0' then redis.call('HINCRBY', leases, me, need) end
      granted[i] = '1'
    else
      granted[i] = '0'
      all_granted = false
    end
  end
  local more = ARGV[at + needs + 1]
  if more ~= '0' and all_granted then
    -- Others may ask, too: no more than this part of what is free.
    local share = string.format('%.0f', math.max(0, math.floor(tonumber(redis.call('HGET', account, 'free') or '0') / 16)))
    if fits(share, more) then more = share end
    if more ~= '0' then
      take(more)
      redis.call('HINCRBY', leases, me, more)
    end
  end
end

local lease = redis.call('HGET', leases, me) or '0'
if lease == '0' then
  redis.call('HDEL', leases, me)
  redis.call('HDEL', ends, me)
else
  redis.call('HSET', ends, me, string.format('%.0f', now + tonumber(ARGV[2])) .. ':' .. ARGV[3])
end
return {state, redis.call('HGET', account, 'free') or '0', lease, table.concat(granted)}
