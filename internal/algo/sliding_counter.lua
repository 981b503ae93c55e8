-- sliding_counter: see sliding_counter.go. q, x = period in ticks, tick. ext is
-- the share of the window before, which is part of used.

-- @age
-- @include words load
local period, tick = q, x
local t = floor(now / tick)
local start = (t - t % period) * tick
clamped = at >= start + period * tick
if clamped then
  used, rem = min(used + rem, cap), 0
elseif at < start then
  if at >= start - period * tick then
    used, rem = 0, used
  else
    used, rem = 0, 0
  end
end
at = start
ext = -floor(-rem * (period - t % period) / period)
used = used + ext

-- @wait
local period, tick = q, x
local start, current = at / tick, used - ext
local counter, room = rem, burst - cost - current
if room < 0 then
  start, counter, room = start + period, current, burst - cost
end
if counter > room then
  start = start + period - floor(room * period / counter)
end
wait = start * tick - now

-- @fresh
if used > ext then
  fresh = at + 2 * q * x - now
elseif rem > 0 then
  fresh = at + q * x - now
end

-- @delay

-- @back
local period, tick = q, x
local earlier = 0
if since >= at and since <= now then
  back = min(units, used - ext)
  used = used - back
  earlier = newest and units - back or 0
elseif since >= at - period * tick and since < at then
  earlier = units
end
if earlier > 0 then
  rem = rem - min(earlier, rem)
  local share = -floor(-rem * (period - floor(now / tick) % period) / period)
  used, back, ext = used - (ext - share), back + ext - share, share
end

-- @save
used, at = used - ext, now
-- @include words save
used = used + ext
