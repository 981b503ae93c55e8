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

-- charges packs the units that are charged for each charge of an act, since when, and
-- from how much later on.
function charges(units, since, delay, n)
  local parts = {}
  for i = 1, n do
    parts[i] = pack('>I7I7I7', units[i] or 0, since[i] or now, delay[i] or 0)
  end
  return table.concat(parts)
end
