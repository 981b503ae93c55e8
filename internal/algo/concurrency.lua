-- concurrency: see concurrency.go. q = lease. A ZSET of holders by the ends of
-- their leases; the member without a name stands for the instant of the last save.
-- The score of the member 'r', if there is one, is -rem. at = the last save;
-- ext = the holders to add, with the ends of their leases, and to take away, with
-- 0; ext[1] is set if the key is not ours.

-- @age
local live = redis.pcall('ZCOUNT', key, string.format('(%.0f', now), '+inf')
ext = {}
if type(live) == 'table' then
  foreign = foreign + 1
  ext[1] = true
else
  -- All leases end after the last save.
  local low = call('ZRANGE', key, 0, 1, 'WITHSCORES')
  if low[1] == 'r' then
    rem, low[2] = -low[2], low[4]
  end
  at = tonumber(low[2] or 0)
  clamped = at > now
  if clamped then
    -- The clock went back: leases last as long as they did. This is written at
    -- once: it changes nothing, whatever becomes of the acts.
    local holders = call('ZRANGE', key, 0, -1, 'WITHSCORES')
    for i = 1, #holders, 2 do
      if holders[i] ~= 'r' then
        call('ZADD', key, string.format('%.0f', holders[i + 1] - (at - now)), holders[i])
      end
    end
    at = now
    live = call('ZCOUNT', key, string.format('(%.0f', now), '+inf')
  end
  if at + q <= now then
    rem = 0
  end
  used = live
end

-- @wait
wait = min(1000000, q)

-- @fresh
if used > 0 or rem > 0 then
  local last, changed = now, 0
  for id, till in pairs(ext) do
    if id ~= 1 then
      last, changed = max(last, till), changed + 1
    end
  end
  if aged > 0 then
    local found = call('ZRANGE', key, -1 - changed, -1, 'WITHSCORES')
    for i = 1, #found, 2 do
      if not ext[found[i]] then
        last = max(last, tonumber(found[i + 1]))
      end
    end
  end
  if rem > 0 then
    last = max(last, ((DIRTY[k] or used ~= aged) and now or at) + q)
  end
  fresh = last - now
end

-- @delay

-- @back

-- @save
if ext[1] then
  call('DEL', key)
end
call('ZREMRANGEBYSCORE', key, '-inf', string.format('%.0f', now))
for id, till in pairs(ext) do
  if id ~= 1 and till > 0 then
    call('ZADD', key, string.format('%.0f', till), id)
  elseif id ~= 1 then
    call('ZREM', key, id)
  end
end
local last = call('ZRANGE', key, -1, -1, 'WITHSCORES')[2]
if last or rem > 0 then
  call('ZADD', key, string.format('%.0f', now), '')
  if rem > 0 then
    call('ZADD', key, -rem, 'r')
    last = max(last or 0, now + q)
  end
  call('PEXPIRE', key, lifetime(last - now))
end
