-- Claims the alert that is due first, so that one instance delivers it at a time.
--
-- KEYS: 1 when alerts are to be delivered, and 2 the outbox, see record.lua
-- ARGV: 1 seconds for which the alert is not due for others
-- Returns the alert, its text in the outbox and the time in seconds since 1970; false if none is due.

local due, outbox = KEYS[1], KEYS[2]
local now = redis.call('TIME')[1]
local first = redis.call('ZRANGEBYSCORE', due, '-inf', now, 'LIMIT', 0, 1)[1]
if not first then
  return false
end
local text = redis.call('HGET', outbox, first)
if not text then
  redis.call('ZREM', due, first)
  return false
end
redis.call('ZADD', due, now + ARGV[1], first)
return {first, text, now}
