-- Functions and tables of the acts that are no runs, made once such an act comes.
KEY, COST, SUM, REFUSED, DELAY, pending = {0, 0}, {0, 0}, {0, 0}, {0, 0}, {0, 0}, {}

-- waits returns how long it takes until so many units fit key k; they do not now.
function waits(k, cost)
  local key, rule, at, used, rem, aged, ext, wait = KEYS[k], RULE[k], AT[k], USED[k], REM[k], AGED[k], EXT[k], 0
  local id, flags, burst, p, q, x, y = rule[1], rule[2], rule[3], rule[6], rule[7], rule[8], rule[9]
  -- @wait
  return wait
end

-- queued returns how long a charge of the leaky bucket k waits behind so many units
-- more than the bucket holds.
function queued(k, units)
  local rule, at, used, rem, fresh = RULE[k], AT[k], min(USED[k] + units, RULE[k][4]), REM[k], 0
  local p, q, x = rule[6], rule[7], rule[8]
  -- @include leaky_bucket delay
  return fresh
end

-- holds reports whether the holder has a slot of key k whose lease has not expired.
function holds(k, holder)
  local till = EXT[k][holder]
  if not till and not EXT[k][1] then
    till = tonumber(call('ZSCORE', KEYS[k], holder) or 0)
  end
  return till and till > now
end

-- occupy gives so many anonymous holders, whose names begin with holder, slots of key k.
function occupy(k, holder, units)
  for i = 1, units do
    EXT[k][holder .. pack('>I2', i)] = now + RULE[k][7]
  end
  USED[k], DIRTY[k] = USED[k] + units, true
end

-- has returns where a list of askings has one, and nil if it does not.
function has(list, number)
  for i = 1, #list, 8 do
    if string.sub(list, i, i + 7) == number then
      return i
    end
  end
end

-- askings packs those of a record: what stands, unless the take is firm, what is withdrawn, and
-- the end of a take that was not known, if there was one.
function askings(firm, standing, withdrawn, ended)
  local costs = ended and (#ended - 16) / 7 or 0
  return string.char(firm and 255 or #standing / 8, #withdrawn / 8, costs) .. (firm and '' or standing) .. withdrawn .. (ended or '')
end

-- ending packs an act that ends a take which is not known. It is remembered for 10 s.
function ending(kind, content, n)
  local costs = {}
  for i = 1, n do
    costs[i] = pack('>I7', COST[i])
  end
  return pack('>I7Bc8', now + 10000000, kind, content) .. table.concat(costs)
end

-- note has a record written, and left is how long it still lives.
function note(r, text, life)
  EXT[r], DIRTY[r], USED[r] = text, true, life
end
function left(r)
  return USED[r] > 0 and USED[r] or max(1, call('PTTL', KEYS[r]))
end

-- charges packs the units that are charged for each charge of an act, since when, and
-- from how much later on.
function charges(units, since, delay, n)
  local parts = {}
  for i = 1, n do
    parts[i] = pack('>I7I7I7', units[i] or 0, since[i] or now, delay[i] or 0)
  end
  return table.concat(parts)
end
