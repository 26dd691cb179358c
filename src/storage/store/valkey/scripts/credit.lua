-- Credits an account, once for each reference. Returns 'unknown' if the account does not exist, 'given' and the amount
-- if the reference is used already, 'large' if the sum of the credits would exceed the maximum, otherwise 'done'.
-- KEYS: account, credits, references. ARGV: amount, negated amount, entry, reference ('' = none), maximum.
if redis.call('HEXISTS', KEYS[1], 'created') == 0 then return {'unknown'} end
if ARGV[4] ~= '' then
  local given = redis.call('HGET', KEYS[3], ARGV[4])
  if given then return {'given', given} end
end
redis.call('HINCRBY', KEYS[1], 'credited', ARGV[1])
local sum = string.gsub(redis.call('HGET', KEYS[1], 'credited'), '^-', '')
if #sum > #ARGV[5] or (#sum == #ARGV[5] and sum > ARGV[5]) then
  redis.call('HINCRBY', KEYS[1], 'credited', ARGV[2])
  return {'large'}
end
redis.call('HINCRBY', KEYS[1], 'free', ARGV[1])
redis.call('RPUSH', KEYS[2], ARGV[3])
if ARGV[4] ~= '' then redis.call('HSET', KEYS[3], ARGV[4], ARGV[1]) end
return {'done'}
