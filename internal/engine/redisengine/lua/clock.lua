-- The store's clock, read once a call, and the time to live of a key that has to
-- outlast an instant: garbage collection with a second of slack, never meaning.
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]

local function lifetime(fresh)
  return string.format('%.0f', floor(fresh / 1000) + 1001)
end
