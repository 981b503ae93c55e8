-- Decides whether charge i fits, beside what the act asks of its key before (pending).
-- Uses i and what take.lua does. Sets refused, SUM[i], REFUSED[i] and DELAY[i], and adds to
-- pending.
local k = KEY[i]
local cost = (pending[k] or 0) + COST[i]
pending[k] = cost
local keep = KEEP and KEEP[i] or 0
local rule, used, need = RULE[k], USED[k], cost + keep
local refused, delay = COST[i] > 0 and (keep >= 0 and used + need > rule[3] or blocked(i)), 0
if rule[1] == LEAKY and not refused and COST[i] > 0 then
  delay = queued(k, cost - COST[i])
  refused = delay > 0 and (immediate or longest > 0 and delay > longest)
elseif refused and rule[1] ~= LEAKY and longest > 0 and need <= rule[3] and used + need <= rule[4] then
  delay = waits(k, need)
  refused = delay > longest
end
SUM[i], REFUSED[i], DELAY[i] = cost, refused, delay
