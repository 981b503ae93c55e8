-- toy_window: see toy_window.go. q = period.

-- @age
-- @include words load
local start = now - now % q
clamped = at > start
if at < start then
  used = 0
end
at = start
if used > cap then
  used = cap
end

-- @wait
wait = at + q - now

-- @fresh
if used > 0 then
  fresh = at + q - now
end

-- @delay

-- @back
if since >= at and since < at + q then
  back = min(units, used)
  used = used - back
end

-- @save
-- @include words save
