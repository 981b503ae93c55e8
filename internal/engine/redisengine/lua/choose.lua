-- Chooses of each group of charges the first alternative that fits, or with up to the one
-- that is granted most. Of alternatives without a cost, a take with a record chooses the one
-- with most room, which is what it can be settled on.
-- Uses GROUP and ALT and what take.lua does. Sets SKIP[i] (charge i is of an alternative that
-- is not evaluated) and what fit.lua sets, and clears fits if a group has no alternative.
-- Later groups see what the chosen one asks for, or else the one that would fit first.
local from = 1
while from <= n do
  local last, peeks = from, true
  while last < n and GROUP[last + 1] == GROUP[from] do
    last = last + 1
  end
  for i = from, last do
    peeks, SKIP[i] = peeks and COST[i] == 0, false
  end
  local holds = peeks and record > 0
  local first, chosen, chosen_last, granted, soonest, soonest_last, shortest = from, nil, 0, 0, nil, 0, nil
  while first <= last and (peeks or most > 0 or not chosen) do
    local i, fitting, longer, units = first, true, 0, holds and math.huge or most
    repeat
      -- @section fit
      if refused then
        local id, burst, p, q, x = rule[1], rule[3], rule[6], rule[7], rule[8]
        local outcome, wait = 2, 0
        -- @section retry
        fitting, longer = false, max(longer, outcome == 4 and math.huge or wait)
      elseif holds then
        if keep >= 0 and not (WAIVED and WAIVED[i]) then
          units = min(units, rule[3] - used - need, blocked(i) and 0 or units)
        end
      elseif units > 0 and keep >= 0 then
        units = min(units, floor((rule[3] - used - keep) / (cost / COST[i])))
      end
      i = i + 1
    until i > last or ALT[i] ~= ALT[first]
    for j = first, i - 1 do
      pending[KEY[j]] = pending[KEY[j]] - COST[j]
    end
    if fitting and (not chosen or units > granted) then
      chosen, chosen_last, granted = first, i - 1, units
    elseif not fitting and (not soonest or longer < shortest) then
      soonest, soonest_last, shortest = first, i - 1, longer
    end
    first = i
  end
  fits = fits and chosen
  for j = chosen or soonest, chosen and chosen_last or soonest_last do
    pending[KEY[j]] = pending[KEY[j]] + COST[j]
  end
  if chosen and (holds or not peeks) then
    for i = from, last do
      SKIP[i] = i < chosen or i > chosen_last
    end
  end
  from = last + 1
end
