-- gcra: see gcra.go. p, q, x, y = num, den, tick, full.

-- @age
-- @include words load
local num, den, tick, full = p, q, x, y
local t = floor(now / tick)
at = -floor(-at / tick)
clamped = at > t
used = min(used, cap)
if clamped then
  at, rem = t, 0
end
local drained = min(t - at, full) * num + rem
if drained >= used * den then
  at, used, rem = t * tick, 0, 0
else
  local units = floor(drained / den)
  local rest = drained - units * den
  local ticks = floor(rest / num)
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

-- @save
-- @include words save
