-- Records what one request has used, once, and the alerts that are due by then.
--
-- KEYS: 1 the mark of the request's ID
--       2 the month, a hash: name of a number, space, row → sum
--       3 the outbox, a hash: alert → when it was recorded, in seconds since 1970, the units used,
--         the level and what it is about, with spaces between them
--       4 when alerts are to be delivered, a sorted set: alert → seconds since 1970
--       5 the epoch, see epoch.lua
--       6 … the windows, a hash each: key → units used; key, space, level → 1 for each alert that
--         was recorded
-- ARGV: 1 seconds to keep the mark, and 2 how many fields a month may have
--       3 when the month expires, in seconds since 1970
--       4 the row of the month, and 5 the one in its place if there are too many
--       6 milliseconds to keep the outbox
--       7 the epoch of the store in which to record
--       8 how many sums, -1 without an ID, then for each the name of its number and what to add
--       then for each window: the key, the units to add, when the window expires, what its alerts
--       are about, how many levels, and for each the level ("80 200000000": percent and amount) and
--       the units at which it is due
-- All keys have the same hash tag. Returns how many alerts were recorded, -1 if the ID was
-- recorded before, or -2 if the store has another epoch, and nothing was recorded.

local mark, month, outbox, due = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local row = ARGV[4]
local sums = tonumber(ARGV[8])
local at = 9

if redis.call('GET', KEYS[5]) ~= ARGV[7] then
  return -2
end
if sums >= 0 then
  if not redis.call('SET', mark, 1, 'NX', 'EX', ARGV[1]) then
    return -1
  end
end
if sums > 0 then
  if redis.call('HLEN', month) + sums > tonumber(ARGV[2]) and not redis.call('HGET', month, ARGV[at] .. ' ' .. row) then
    row = ARGV[5]
  end
  for _ = 1, sums do
    redis.call('HINCRBY', month, ARGV[at] .. ' ' .. row, ARGV[at + 1])
    at = at + 2
  end
  redis.call('EXPIREAT', month, ARGV[3])
end

local recorded, now = 0, nil
for i = 6, #KEYS do
  local window, key, about, levels = KEYS[i], ARGV[at], ARGV[at + 3], tonumber(ARGV[at + 4])
  local used
  if tonumber(ARGV[at + 1]) == 0 then
    used = tonumber(redis.call('HGET', window, key) or 0)
  else
    used = redis.call('HINCRBY', window, key, ARGV[at + 1])
    redis.call('EXPIREAT', window, ARGV[at + 2])
  end
  at = at + 5
  for _ = 1, levels do
    local level = ARGV[at]
    if used >= tonumber(ARGV[at + 1]) and redis.call('HSETNX', window, key .. ' ' .. level, 1) == 1 then
      now = now or redis.call('TIME')[1]
      local alert = window .. ' ' .. key .. ' ' .. level
      redis.call('HSET', outbox, alert, now .. ' ' .. string.format('%.0f', used) .. ' ' .. level .. ' ' .. about)
      redis.call('ZADD', due, now, alert)
      recorded = recorded + 1
    end
    at = at + 2
  end
end
if recorded > 0 then
  redis.call('PEXPIRE', outbox, ARGV[6])
  redis.call('PEXPIRE', due, ARGV[6])
end
return recorded
