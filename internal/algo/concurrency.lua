-- concurrency: see concurrency.go. q = lease. A ZSET of holders by the ends of
-- their leases; the member without a name stands for the instant of the last save.
-- ext = the holders to add or take away, as id and end, 0 for none.

-- @age
local live = redis.pcall('ZCOUNT', key, string.format('(%.0f', now), '+inf')
ext = {}
if type(live) == 'table' then
  foreign = foreign + 1
  ext.foreign = true
else
  local saved = tonumber(call('ZSCORE', key, '') or 0)
  clamped = saved > now
  if clamped then
    -- The clock went back: leases last as long as they did. This is written at
    -- once: it changes nothing, whatever becomes of the acts.
    local holders = call('ZRANGE', key, 0, -1, 'WITHSCORES')
    for i = 1, #holders, 2 do
      call('ZADD', key, string.format('%.0f', holders[i + 1] - (saved - now)), holders[i])
    end
    live = call('ZCOUNT', key, string.format('(%.0f', now), '+inf')
  end
  used = live
end

-- @wait
local leave = used + cost - burst
if leave <= aged then
  local found = call('ZRANGEBYSCORE', key, string.format('(%.0f', now), '+inf', 'WITHSCORES', 'LIMIT', leave - 1, 1)
  wait = found[2] - now
else
  wait = q
end

-- @fresh
if used > aged then
  fresh = q
elseif used > 0 then
  fresh = call('ZRANGE', key, -1, -1, 'WITHSCORES')[2] - now
end

-- @delay

-- @back
back = 0

-- @save
if ext.foreign then
  call('DEL', key)
end
call('ZREMRANGEBYSCORE', key, '-inf', now)
for id, till in pairs(ext) do
  if id ~= 'foreign' and till > 0 then
    call('ZADD', key, till, id)
  elseif id ~= 'foreign' then
    call('ZREM', key, id)
  end
end
local last = call('ZRANGE', key, -1, -1, 'WITHSCORES')[2]
if last then
  call('ZADD', key, string.format('%.0f', now), '')
  call('PEXPIRE', key, lifetime(last - now))
end
