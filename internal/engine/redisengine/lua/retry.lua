-- Finds out when a refused charge will fit.
-- Uses i and what take.lua does, and of its key: k, rule, id, burst, p, x, used, cost (what
-- the act asks of it) and keep. Sets outcome (2, 4 for never, or 6 for a block) and wait.
outcome = cost + keep > burst and 4 or 2
local before = cost - COST[i]
if before > 0 and id == LEAKY and (immediate or longest > 0 and -floor(-before * q / p) * x - x + 1 > longest) then
  -- The act's own charges before this one fill the queue for longer than it can wait.
  outcome = 4
end
if outcome == 2 and used + cost + keep > burst then
  wait = waits(k, cost + keep)
end
if outcome == 2 and id == LEAKY and (immediate or longest > 0) then
  wait = max(wait, queued(k, cost - COST[i]) - (immediate and 0 or longest))
elseif outcome == 2 and longest > 0 then
  wait = wait - longest
  if used + cost > rule[4] then
    wait = max(wait, waits(k, cost + burst - rule[4]))
  end
end
if outcome == 2 and blocked(i) then
  outcome, wait = 6, max(wait, blocked_for(i))
end
