-- Returns the epoch of the store: a text that the first instance makes up, so that a store that has
-- lost its data has another one.
--
-- KEYS: 1 the epoch
-- ARGV: 1 the epoch of a store that has none, and 2 milliseconds to keep it

local epoch = redis.call('GET', KEYS[1])
if epoch then
  redis.call('PEXPIRE', KEYS[1], ARGV[2])
  return epoch
end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return ARGV[1]
