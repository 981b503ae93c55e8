-- Decides one run: takes that charge the same to one key, one after the other. The units
-- granted go to the first of them.
-- Uses the state of the key (at, used, rem, ext) and its rule (id, flags, burst, debt).
-- Changes used, and sets granted, was (used, before), first and second (see head.lua), and
-- how (the flags of the run).
local how, times, cost, most = 0, 0, 0, nil
how, times, cost, pos = unpack('>BI2I7', request, pos)
if how % 4 >= 2 then
  most, pos = unpack('>I7', request, pos)
end
local burst = burst
if how >= 8 then
  -- What is kept free is not there for these takes.
  local keep
  keep, pos = unpack('>I7', request, pos)
  burst = burst - keep
end
local was, granted, refused, wait, fresh = used, 0, cost * times, 0, 0
if cost > 0 and used + cost <= burst then
  if id == LEAKY and how % 2 == 1 then
    granted = used > 0 and 0 or most and min(most, burst) or cost
  elseif most then
    granted = min(most, burst - used)
  else
    granted = times == 1 and cost or min(times, floor((burst - used) / cost)) * cost
  end
  refused = most and granted > 0 and 0 or refused - granted
  used = used + granted
end
if refused > 0 and flags % 2 == 1 then
  used = max(used, min(used + refused, debt))
end
local first, second = at, rem
if id == LOG or id == RING then
  if refused > 0 and cost <= burst then
    -- @wait
  end
  -- @fresh
  first, second = fresh, wait
elseif id == COUNTER then
  first = ext
end
