-- Records that an instance is alive, and reads how many are.
--
-- KEYS: 1 the instances, a sorted set: ID → milliseconds since 1970 until which it counts
--       2 the overrides, see override.lua
-- ARGV: 1 the instance's ID; 2 milliseconds for which it counts after a poll
--       3 milliseconds after a poll for which others wait for the instance's next one
--       4 when the instance polled first, in milliseconds since 1970; 0: now
-- Returns the number of instances; the version of the overrides, empty without any; the number of
-- other instances that have not polled since this one polled first, and may still do so; and the
-- time in milliseconds since 1970.

local instances, overrides = KEYS[1], KEYS[2]
local id, life, patience, since = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
if since == 0 then
  since = now
end

redis.call('ZREMRANGEBYSCORE', instances, 0, now)
redis.call('ZREM', instances, id)
local unaware = redis.call('ZCOUNT', instances, now - patience + life, since + life)
redis.call('ZADD', instances, now + life, id)
redis.call('PEXPIRE', instances, life)
return {redis.call('ZCARD', instances), redis.call('HGET', overrides, 'version') or '', unaware, now}
