-- fixed_window: see fixed_window.go. q = period.

-- @age
-- @include words load
local period = q
clamped = at > now
local start = now - now % period
if flags % 4 >= 2 then -- anchor: first
  start = at
  if clamped or used == 0 or now >= at + period then
    start = now
  end
end
if at < start then
  used = 0
end
at = start

-- @wait
wait = at + q - now

-- @fresh
if used > 0 then
  fresh = at + q - now
end

-- @save
-- @include words save
