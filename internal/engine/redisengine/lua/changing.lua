-- Functions and tables of the acts that change what others have charged, made once such an act
-- comes.
HELD, SINCE, LATER, UNTOUCHED, MISSING, TOLD = {0, 0}, {0, 0}, {0, 0}, {0, 0}, {0, 0}, {0, 0}

-- give takes up to so many units of a whole grant back from key k and returns how much
-- room that makes.
function give(k, units, whole, since, delay)
  local key, rule, at, used, rem, aged, ext = KEYS[k], RULE[k], AT[k], USED[k], REM[k], AGED[k], EXT[k]
  local id, flags, burst, cap, p, q, x, y = rule[1], rule[2], rule[3], rule[4], rule[6], rule[7], rule[8], rule[9]
  local back, newest = 0, anonymous
  if id == CONCURRENCY and anonymous then
    -- Refused takes come before the oldest holders without a name of their own.
    local refused, slots, from = min(units, rem), 0, 0
    while refused + slots < units and from < used do
      local names = call('ZRANGEBYSCORE', key, string.format('(%.0f', now), '+inf', 'LIMIT', from, 2 * units)
      for _, name in ipairs(names) do
        if #name > 16 and refused + slots < units then
          ext[name], slots = 0, slots + 1
        end
      end
      from = from + 2 * units
    end
    REM[k], USED[k], AGED[k] = rem - refused, used - slots, aged - slots
    return refused + slots
  elseif id == CONCURRENCY then
    if units > 0 and holds(k, holder) then
      ext[holder], used, back = 0, used - 1, 1
    end
  elseif units > 0 then
    REFUNDABLE[k] = true
    -- @back
  end
  AT[k], USED[k], REM[k], AGED[k], EXT[k] = at, used, rem, aged - back, ext
  return back
end

-- force charges units to key k even if they do not fit, up to its debt, and returns how
-- many.
function force(k, units)
  local used = USED[k]
  if RULE[k][1] == CONCURRENCY and anonymous then
    occupy(k, holder, max(0, min(units, RULE[k][5] - used)))
  elseif RULE[k][1] ~= CONCURRENCY then
    USED[k] = max(used, min(used + units, RULE[k][5]))
  end
  return USED[k] - used
end

-- put is force, but gives the holder a slot of a concurrency limit.
function put(k, units)
  if RULE[k][1] ~= CONCURRENCY then
    return force(k, units)
  end
  if not holds(k, holder) then
    USED[k] = USED[k] + 1
  end
  EXT[k][holder], DIRTY[k] = now + RULE[k][7], true
  return 1
end
