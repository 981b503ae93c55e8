-- gcra: see gcra.go. p, q, x, y = num, den, tick, full. A remainder taken off is
-- cheaper than floor, which is a call.

-- @age
-- @include low_water load
-- @include words load
local num, den, tick, full = p, q, x, y
local t = (now - now % tick) / tick
at = (at + -at % tick) / tick
clamped = at > t
if used > cap then
  used = cap
end
if clamped then
  at, rem = t, 0
end
local drained = t - at
if drained > full then
  drained = full
end
drained = drained * num + rem
if drained >= used * den then
  at, used, rem = t * tick, 0, 0
else
  local rest = drained % den
  local units = (drained - rest) / den
  local ticks = (rest - rest % num) / num
  at, used, rem = (t - ticks) * tick, used - units, rest - ticks * num
end

-- @wait
local num, den, tick = p, q, x
wait = at - floor(-((used + cost - burst) * den - rem) / num) * tick - now

-- @fresh
if used > 0 then
  local num, den, tick = p, q, x
  fresh = at - floor(-(used * den - rem) / num) * tick - now
end

-- @delay

-- @back
local num, den, tick, full = p, q, x, y
local due = since + delay
local pass = true
if due > now then
  local before = used - (id == LEAKY and whole or burst)
  pass = before > 0 and at - floor(-(before * den - rem) / num) * tick <= due
  due = now
end
local t = floor(now / tick)
if pass then
  local level, most, ago = used * den - (t - at / tick) * num - rem, min(units, cap) * den, min(t - floor(due / tick), full)
  -- @include low_water least
  local gone = max(0, min(level, max(min(most, least), most - ago * num)))
  -- @include low_water refund
  level = level - gone
  local left = -floor(-level / den)
  local rest = left * den - level
  back = used - left
  used, rem, at = left, rest % num, (t - floor(rest / num)) * tick
end

-- @save
local num, den, tick = p, q, x
local level = aged * den - (floor(now / tick) - at / tick) * num - rem
-- @include low_water save
-- @include words save
value = ext and value .. ext or value
