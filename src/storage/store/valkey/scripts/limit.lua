-- Limit transaction of one gateway, for the limits of a key or of an account that gateways share.
-- Times are microseconds of the server. Amounts of money are doubles here: exact up to nine million units, and to a
-- relative error of a billionth beyond, which is enough for a limit; charges are added up elsewhere.
-- KEYS: limit state, sums of the day, sums of the month.
-- ARGV: gateway, transaction number, lifetimes of leased permits and of leased spend (ms), field of the sums;
--   limits ('' = none): requests and tokens per minute, concurrency permits, spend per day, spend per month;
--   used since the last transaction (negative: returned): requests, tokens; leases to retain: permits, spend;
--   surplus to lease in advance: requests, tokens, permits, spend; retained permits that are not in use; then for
--   each request: tokens, price.
local gauge, me = KEYS[1], 'g:' .. ARGV[1]
local MINUTE, PART = 60000000, 16
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local function whole(number) return string.format('%.0f', number) end

-- Leases of gateways without a recent transaction expire: permits soon, spend later, since it may still be charged.
local requests, tokens, places, money, gateways, seen = 0, 0, 0, 0, 1, -1
local all = redis.call('HGETALL', gauge)
for i = 1, #all, 2 do
  local field, value = all[i], all[i + 1]
  if field == 'requests' then
    requests = tonumber(value)
  elseif field == 'tokens' then
    tokens = tonumber(value)
  else
    local at, number, some, amount = string.match(value, '^(%d+):(%d+):(%d+):(%d+)$')
    local age = now - tonumber(at)
    if field == me then
      seen = tonumber(number)
    elseif age > ARGV[4] * 1000 then
      redis.call('HDEL', gauge, field)
    else
      money = money + tonumber(amount)
      if age <= ARGV[3] * 1000 then
        places = places + tonumber(some)
        gateways = gateways + 1
      end
    end
  end
end
-- Reject a transaction that was sent over an abandoned connection and arrives after a later one.
if tonumber(ARGV[2]) < seen then return {'late'} end

local per_requests, per_tokens, most = tonumber(ARGV[6]), tonumber(ARGV[7]), tonumber(ARGV[8])
local of_day, of_month = tonumber(ARGV[9]), tonumber(ARGV[10])
local function owed(full, amount, limit)
  if not limit or amount == 0 then return full end
  if amount < 0 then return full + math.ceil(amount * MINUTE / limit) end
  return math.max(full, now) + math.ceil(amount * MINUTE / limit)
end
requests = owed(requests, tonumber(ARGV[11]), per_requests)
tokens = owed(tokens, tonumber(ARGV[12]), per_tokens)
local mine, my_money = tonumber(ARGV[13]), tonumber(ARGV[14])
local day = of_day and tonumber(redis.call('HGET', KEYS[2], ARGV[5]) or '0') or 0
local month = of_month and tonumber(redis.call('HGET', KEYS[3], ARGV[5]) or '0') or 0
-- Remaining spend under a limit, less the spend `amount` that is leased. With 0: as if no request were in flight.
local function left(limit, spent, amount)
  return limit and limit - spent - amount or math.huge
end

local granted, every = {}, true
for i = 20, #ARGV, 2 do
  local amount, price = tonumber(ARGV[i]), tonumber(ARGV[i + 1])
  local why
  local requests_then, tokens_then = owed(requests, 1, per_requests), owed(tokens, amount, per_tokens)
  if most and places + mine >= most then
    why = 'places'
  elseif per_requests and requests_then - now > MINUTE then
    why = 'requests:' .. whole(requests_then - now - MINUTE)
  elseif per_tokens and tokens_then - now > MINUTE then
    why = 'tokens:' .. whole(tokens_then - now - MINUTE)
  elseif left(of_month, month, money + my_money) < price then
    why = left(of_month, month, 0) < price and 'month' or 'month:soon'
  elseif left(of_day, day, money + my_money) < price then
    why = left(of_day, day, 0) < price and 'day' or 'day:soon'
  end
  if why then
    every = false
  else
    requests, tokens = requests_then, tokens_then
    if most then mine = mine + 1 end
    if of_day or of_month then my_money = my_money + price end
  end
  granted[#granted + 1] = why or ''
end

-- Surplus for later requests: at most one part in PART of the remaining quota, since other gateways need it too.
local function share(wanted, room)
  return math.max(0, math.min(tonumber(wanted), math.floor(room / PART)))
end
local ahead_requests, ahead_tokens, spare = 0, 0, 0
if every then
  if per_requests then
    ahead_requests = share(ARGV[15], (MINUTE - math.max(0, requests - now)) * per_requests / MINUTE)
    requests = owed(requests, ahead_requests, per_requests)
  end
  if per_tokens then
    ahead_tokens = share(ARGV[16], (MINUTE - math.max(0, tokens - now)) * per_tokens / MINUTE)
    tokens = owed(tokens, ahead_tokens, per_tokens)
  end
  if most then
    -- Retained permits that are idle are a part of the surplus: with a new surplus beside them, the gateway would return
    -- one at once.
    local idle = tonumber(ARGV[19])
    spare = share(ARGV[17], most - places - mine + idle)
    mine = mine + math.max(0, spare - idle)
  end
  if of_day or of_month then
    local room = math.min(left(of_day, day, money + my_money), left(of_month, month, money + my_money))
    my_money = my_money + share(ARGV[18], room)
  end
end

redis.call('HSET', gauge, 'requests', whole(requests), 'tokens', whole(tokens),
  me, whole(now) .. ':' .. ARGV[2] .. ':' .. whole(mine) .. ':' .. whole(my_money))
local life = math.max(tonumber(ARGV[4]), (math.max(requests, tokens) - now) / 1000)
redis.call('PEXPIRE', gauge, whole(life + 1000))
return {
  table.concat(granted, ','), whole(math.max(0, requests - now)), whole(math.max(0, tokens - now)),
  whole(ahead_requests), whole(ahead_tokens), whole(mine), whole(spare), whole(my_money), whole(gateways),
  whole(day), whole(month),
}
