-- fixed_window: see fixed_window.go. q = period; with the flag calendar, p, q, x
-- and y are four instants at which windows start, of which now is before x.

-- @age
-- @include words load
local start, window_end = now - now % q, nil
if flags % 4 >= 2 then -- anchor: first
  clamped = at > now
  if clamped then
    at = now
  elseif used == 0 or now >= at + q then
    at, used = now, 0
  end
else
  window_end = start + q
  if flags % 8 >= 4 then -- calendar
    start, window_end = now >= q and q or p, now >= q and x or q
  end
  -- Other windows than those of now know nothing of the state.
  if used > 0 and at >= window_end and (flags % 8 < 4 or now >= p and now < x) then
    clamped, at = at ~= window_end, window_end
  else
    if at < start then
      used = 0
    end
    at = start
  end
end

-- @end
local window_end = at + q
if flags % 8 >= 4 then
  window_end = at >= x and y or at >= q and x or q
end

-- @wait
-- @include fixed_window end
wait = window_end - now

-- @fresh
if used > 0 then
  -- @include fixed_window end
  fresh = window_end - now
end

-- @delay

-- @back
-- @include fixed_window end
if since >= at and since < window_end then
  back = min(units, used)
  used = used - back
end

-- @save
if flags % 4 < 2 then
  at = max(at, now)
end
-- @include words save
