-- A bare GCRA, as short as it can be and still exact: the floor of what a decision
-- costs in Redis.
-- KEYS: 1 the key.  ARGV: 1 emission interval, 2 tolerance, in µs; 3 life in ms.
-- Reply: 1 granted, 0 refused.
-- State: the theoretical arrival time in µs since the epoch.
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local tat = math.max(tonumber(redis.call('GET', KEYS[1]) or 0), now) + ARGV[1]
if tat - now > tonumber(ARGV[2]) then return 0 end
redis.call('SET', KEYS[1], string.format('%.0f', tat), 'PX', ARGV[3])
return 1
