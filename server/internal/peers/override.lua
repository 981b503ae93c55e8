-- Puts an override in the place of a key's last one, or ends it.
--
-- KEYS: 1 the overrides, a hash: "=" and the key → its override; "version" → the
--         generation, how many changes there were, and which was the last
--       2 when they end, a sorted set: the key → milliseconds since 1970
-- ARGV: 1 the key; 2 the override, empty to end it; 3 when it ends; 4 how many
--       there may be; 5 the name of the change, and of a new generation; 6
--       milliseconds to keep what nothing is left of
-- Returns the version, or false if there are too many.

local limits, ends = KEYS[1], KEYS[2]
local key, override, till = ARGV[1], ARGV[2], tonumber(ARGV[3])
local most, keep = tonumber(ARGV[4]), tonumber(ARGV[6])
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)

for _, ended in ipairs(redis.call('ZRANGEBYSCORE', ends, 0, now, 'LIMIT', 0, 100)) do
  redis.call('HDEL', limits, '=' .. ended)
  redis.call('ZREM', ends, ended)
end

if override == '' then
  redis.call('HDEL', limits, '=' .. key)
  redis.call('ZREM', ends, key)
else
  if not redis.call('ZSCORE', ends, key) and redis.call('ZCARD', ends) >= most then
    return false
  end
  redis.call('HSET', limits, '=' .. key, override)
  redis.call('ZADD', ends, till, key)
end

local generation, count = string.match(redis.call('HGET', limits, 'version') or '', '^(%w+):(%d+):%w+$')
local version = (generation or ARGV[5]) .. ':' .. string.format('%d:', (count or 0) + 1) .. ARGV[5]
redis.call('HSET', limits, 'version', version)

local last = redis.call('ZREVRANGE', ends, 0, 0, 'WITHSCORES')[2]
local life = math.max(keep, (tonumber(last) or 0) - now + keep)
redis.call('PEXPIRE', limits, life)
redis.call('PEXPIRE', ends, life)
return version
