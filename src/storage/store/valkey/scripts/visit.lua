-- Lease transaction of one gateway and one account: applies shipped usage, renews the lease and grants reservations.
-- Money is never converted to a Lua number, which is a double: it is added by HINCRBY and compared as text.
-- KEYS: account, leases, their ends, last shipped journal number; then for each day: sums, records, sums of its month;
--   then the mark of the idempotency key, if the charge has one.
-- ARGV: gateway, lifetime of leases (ms), transaction number, lease to retain, expected last shipped journal number
--   ('' = no usage is shipped), new last shipped number, charge, lifetime of that number (ms), days,
--   lifetime of the mark of the idempotency key (ms; '' = there is none);
--   for each day: expiry of its records (s), block of records, fields; for each field: name, amount; expiry of the sums
--   of the month (s), fields of the day and the month; for each of these: name, amount;
--   then the number of reservations, and for each: amount; then the surplus to lease in advance.
local account, leases, ends, journal = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local me = ARGV[1]

-- Returns whether a, which is not negative, is at most b.
local function fits(a, b)
  if string.byte(b, 1) == 45 then return false end
  if #a ~= #b then return #a < #b end
  return a <= b
end
-- Adds with saturation: an overflow error would abort the script halfway.
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

-- Reject a transaction that was sent over an abandoned connection: applied after a later one, it would undo that one.
local seen = string.match(redis.call('HGET', ends, me) or '', ':(%d+)$')
if seen and tonumber(ARGV[3]) < tonumber(seen) then return {'late'} end

local at = 10
if ARGV[5] ~= '' then
  local stands = redis.call('GET', journal) or '0'
  if stands ~= ARGV[5] then return {'gap', stands} end
  redis.call('SET', journal, ARGV[6], 'PX', ARGV[8])
  -- If the idempotency key is known, only the number advances.
  local first = ARGV[10] == '' or redis.call('SET', KEYS[#KEYS], '1', 'NX', 'PX', ARGV[10])
  local function charge(name, field, amount)
    if first then grow(name, field, amount) end
  end
  if first then
    add('charged', ARGV[7])
    take(ARGV[7])
  end
  for day = 1, tonumber(ARGV[9]) do
    local sums, records, month = KEYS[2 + 3 * day], KEYS[3 + 3 * day], KEYS[4 + 3 * day]
    if first and ARGV[at + 2] ~= '' then
      redis.call('RPUSH', records, ARGV[at + 2])
      redis.call('EXPIREAT', records, ARGV[at + 1])
    end
    local fields = tonumber(ARGV[at + 3])
    at = at + 3
    for _ = 1, fields do
      charge(sums, ARGV[at + 1], ARGV[at + 2])
      at = at + 2
    end
    local ending, spent = ARGV[at + 1], tonumber(ARGV[at + 2])
    at = at + 2
    for _ = 1, spent do
      charge(sums, ARGV[at + 1], ARGV[at + 2])
      charge(month, ARGV[at + 1], ARGV[at + 2])
      at = at + 2
    end
    if first and spent > 0 then redis.call('EXPIREAT', month, ending) end
  end
end

local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
-- Leases of gateways without a recent transaction expire and can be spent again: once a second, since the search takes as
-- long as the account has gateways, and whenever a reservation needs them. The field '' has the time of the next search.
local searched = false
local function free_expired()
  searched = true
  local all = redis.call('HGETALL', ends)
  for i = 1, #all, 2 do
    if all[i] ~= me and all[i] ~= '' and tonumber(string.match(all[i + 1], '^%d+')) <= now then
      add('free', redis.call('HGET', leases, all[i]) or '0')
      redis.call('HDEL', leases, all[i])
      redis.call('HDEL', ends, all[i])
    end
  end
  redis.call('HSET', ends, '', string.format('%.0f', now + 1000))
end
if tonumber(redis.call('HGET', ends, '') or '0') <= now then free_expired() end

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
    local fitting = need == '0' or fits(need, redis.call('HGET', account, 'free') or '0')
    if not fitting and not searched then
      free_expired()
      fitting = fits(need, redis.call('HGET', account, 'free') or '0')
    end
    if fitting then
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
    -- Lease at most this part of the free balance in advance, since other gateways need it too.
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
  -- Without a lease there is nothing to search.
  if redis.call('HLEN', ends) <= 1 then redis.call('HDEL', ends, '') end
else
  redis.call('HSET', ends, me, string.format('%.0f', now + tonumber(ARGV[2])) .. ':' .. ARGV[3])
end
return {state, redis.call('HGET', account, 'free') or '0', lease, table.concat(granted)}
