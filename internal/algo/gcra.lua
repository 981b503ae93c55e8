-- gcra: see gcra.go. p, q, x, y = num, den, tick, full. A remainder taken off is
-- cheaper than floor, which is a call.

-- @age
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
local ago = t - floor(due / tick)
if pass and ago <= full then
  local level = used * den - (t - at / tick) * num - rem
  level = level - max(0, min(level, min(units, cap) * den - ago * num))
  local left = -floor(-level / den)
  local rest = left * den - level
  back = used - left
  used, rem, at = left, rest % num, (t - floor(rest / num)) * tick
end

-- @save
-- @include words save
