-- The store's clock, read once a call, and the time to live of a key: garbage
-- collection with a second of slack, never meaning.
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]

local function lifetime(fresh)
  return string.format('%.0f', floor(fresh / 1000) + 1001)
end

local function ttl(rule, used, fresh)
  if used <= rule[3] then
    return rule[10]
  end
  return lifetime(fresh)
end
