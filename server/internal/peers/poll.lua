-- Records that an instance is alive, and reads how many are.
--
-- KEYS: 1 the instances, a sorted set: ID → milliseconds since 1970 until which it counts
--       2 the overrides, see override.lua
-- ARGV: 1 the instance's ID; 2 milliseconds for which it counts
-- Returns the number of instances, and the version of the overrides, empty without any.

local instances, overrides = KEYS[1], KEYS[2]
local id, life = ARGV[1], tonumber(ARGV[2])
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)

redis.call('ZREMRANGEBYSCORE', instances, 0, now)
redis.call('ZADD', instances, now + life, id)
redis.call('PEXPIRE', instances, life)
return {redis.call('ZCARD', instances), redis.call('HGET', overrides, 'version') or ''}
