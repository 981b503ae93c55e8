-- Chooses of each group of charges the first alternative that fits.
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
  local first, chosen, chosen_last, soonest, soonest_last, shortest = from, nil, 0, nil, 0, nil
  while first <= last and (peeks or not chosen) do
    local i, fitting, longer = first, true, 0
    repeat
      -- @section fit
      if refused then
        local keep, id, burst, p, q, x = need - cost, rule[1], rule[3], rule[6], rule[7], rule[8]
        local outcome, wait = 2, 0
        -- @section retry
        fitting, longer = false, max(longer, outcome == 4 and math.huge or wait)
      end
      i = i + 1
    until i > last or ALT[i] ~= ALT[first]
    if fitting then
      chosen, chosen_last = first, i - 1
    else
      for j = first, i - 1 do
        pending[KEY[j]] = pending[KEY[j]] - COST[j]
      end
      if not soonest or longer < shortest then
        soonest, soonest_last, shortest = first, i - 1, longer
      end
    end
    first = i
  end
  if not chosen then
    fits = false
    for j = soonest, soonest_last do
      pending[KEY[j]] = pending[KEY[j]] + COST[j]
    end
  elseif not peeks then
    for i = from, last do
      SKIP[i] = i < chosen or i > chosen_last
    end
  end
  from = last + 1
end
