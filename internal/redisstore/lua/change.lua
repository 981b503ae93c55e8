-- Does an act that is no take: it changes what earlier acts have charged. Such an act
-- comes in a call of its own.
-- Uses kind, n, KEY, COST, first (where the charges begin in the request), immediate,
-- elsewhere, holder, lease and the act's record. Changes the keys' state, sets code where
-- the act cannot be done, and appends the decisions to reply.

-- give takes up to so many units of a whole grant back from key k and returns how much
-- room that makes.
local function give(k, units, whole, since, delay)
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
local function force(k, units)
  local used = USED[k]
  if RULE[k][1] == CONCURRENCY and anonymous then
    occupy(k, holder, max(0, min(units, RULE[k][5] - used)))
  elseif RULE[k][1] ~= CONCURRENCY then
    USED[k] = max(used, min(used + units, RULE[k][5]))
  end
  return USED[k] - used
end

-- put is force, but gives the holder a slot of a concurrency limit.
local function put(k, units)
  if RULE[k][1] ~= CONCURRENCY then
    return force(k, units)
  end
  if not holds(k, holder) then
    USED[k] = USED[k] + 1
  end
  EXT[k][holder], DIRTY[k] = now + RULE[k][7], true
  return 1
end

-- What is charged for each charge, since when, and from how much later on: by the record,
-- or else by the act itself.
local held, since, delay, answer = {}, {}, {}, known and unpack('>I7', known, 10)
-- untouched charges are of alternatives that the take was not granted (0), or were waived (5).
local untouched = {}
for i = 1, n do
  local k, was = KEY[i], COST[i]
  held[i], since[i], delay[i] = kind ~= AMEND and was or 0, now, 0
  if known then
    local outcome, granted, _, _, _, late = unpack(DECISION, known, 17 + 36 * (i - 1))
    was, held[i], since[i], delay[i] = granted, granted, answer, late
    untouched[i] = kind ~= AMEND and (outcome == 0 or outcome == 5) and outcome
    if tail > size then
      held[i], since[i], delay[i] = unpack('>I7I7I7', known, size + 1 + 21 * (i - 1))
    end
  end
  if untouched[i] then
    held[i] = 0
  elseif kind == REFUND and COST[i] > was then
    code = OVER_REFUND
  elseif kind == RENEW and RULE[k][1] == CONCURRENCY and held[i] > 0 and not holds(k, holder) then
    code = UNKNOWN
  end
end

-- Change the charges, the last first: what an act has booked twice waits behind itself. An
-- amendment gives units back before it charges others (missing): alternatives may charge one
-- key, and a holder has one slot of it. queue is what the act holds of a key.
local missing, queue = {}, {}
for i = code == 0 and n or 0, 1, -1 do
  local k, cost, was, at, late, granted = KEY[i], COST[i], held[i], since[i], delay[i], 0
  DIRTY[k] = DIRTY[k] or kind ~= AMEND and not untouched[i]
  if untouched[i] then
    granted = 0
  elseif kind == REFUND then
    if anonymous then
      at = now
    elseif not known then
      at, late = unpack('>I7I7', request, first + 30 * i - 14)
    end
    granted = give(k, min(cost, was), was, at, late)
  elseif kind == SETTLE and cost < was then
    give(k, was - cost, was, at, late)
    granted = cost
  elseif kind == SETTLE then
    granted = was + force(k, cost - was)
  elseif kind == RELEASE then
    granted = give(k, was, was, at, late)
  elseif kind == RENEW and RULE[k][1] == CONCURRENCY and was > 0 then
    EXT[k][holder], granted = now + (lease > 0 and lease or RULE[k][7]), 1
  elseif kind == RESET then
    AT[k], USED[k], REM[k], AGED[k], EXT[k], DIRTY[k] = now, 0, 0, 0, false, 'reset'
  elseif kind == RECORD then
    granted = force(k, cost)
  elseif kind == AMEND then
    -- due is what has to be charged after what the caller was told.
    local outcome, due, _, later = unpack('>BI7I7I7', request, first + 38 * i - 22)
    if outcome ~= 1 then
      due = outcome % 2 == 0 and outcome > 0 and RULE[k][2] % 2 == 1 and cost or 0
    end
    if due < was then
      -- The caller does not know yet when the units leave that its act has queued after these.
      give(k, was - due, was + (elsewhere and queue[k] or 0), at, late)
      DIRTY[k], held[i] = true, due
    elseif due > was then
      if was == 0 then
        since[i], delay[i] = now, later
      end
      missing[i], REFUNDABLE[k] = due - was, true
    end
    granted = outcome == 1 and held[i] or 0
    queue[k] = (queue[k] or 0) + held[i]
  end
  COST[i] = granted
end
for i = n, 1, -1 do
  if missing[i] then
    held[i] = held[i] + put(KEY[i], missing[i])
    COST[i] = string.byte(request, first + 38 * i - 22) == 1 and held[i] or 0
  end
end

-- Answer. An amended take's record holds what the caller was told (told).
local told, before, status = {}, 0, (elsewhere and 5 or 13) + (kind == AMEND and 1 or 0)
for i = 1, code == 0 and n or 0 do
  local k, fresh = KEY[i], 0
  local key, rule, at, used, rem, aged, ext = KEYS[k], RULE[k], AT[k], USED[k], REM[k], AGED[k], EXT[k]
  local id, flags, burst, p, q, x, y = rule[1], rule[2], rule[3], rule[6], rule[7], rule[8], rule[9]
  if used > 0 or id == CONCURRENCY and rem > 0 then
    -- @fresh
  elseif DIRTY[k] and not untouched[i] then
    -- A key that is as good as new need not be kept.
    DIRTY[k] = 'reset'
  end
  answers = answers + 1
  local outcome, room, wait, late = 1, max(0, burst - used - (KEEP and max(0, KEEP[i]) or 0)), 0, 0
  if immediate and id == LEAKY and used > 0 then
    room = 0
  end
  if KEEP and KEEP[i] < 0 then
    room = max(room, before)
  end
  if kind == AMEND then
    local units
    outcome, units, wait, late = unpack('>BI7I7I7', request, first + 38 * i - 22)
    if elsewhere and id == LEAKY then
      -- The charge waits for fewer units of its own act than it was going to.
      late = min(late, max(0, now - (answer or now)) + queued(k, -queue[k]))
      queue[k], delay[i] = queue[k] - held[i], late
    end
    if outcome == 1 or outcome == 5 then
      status = status - status % 4 + 1
    end
    if outcome == 0 or outcome == 5 then
      room, fresh = 0, 0
    end
    told[i] = pack(DECISION, outcome, units, room, wait, fresh, late)
  end
  before = room
  if untouched[i] then
    outcome, fresh = untouched[i], 0
  end
  reply[answers] = pack(DECISION, outcome, COST[i], room, wait, fresh, late)
end

-- Remember what has become of the take.
if kind == AMEND and code == 0 then
  known = pack('>Bc8I7', status, content, answer or now) .. table.concat(told) .. charges(held, since, delay, n)
end
if known and code == 0 then
  if kind == REFUND or kind == SETTLE or kind == RELEASE then
    known = known .. pack('>Bc8I7', kind, content, now) .. table.concat(reply, '', top + 1, answers)
  end
  if status % 4 == 1 then
    -- A hold outlives what is done to it meanwhile.
    life = max(life, call('PTTL', KEYS[record]))
  else
    life = refused_life
  end
  EXT[record], DIRTY[record], USED[record] = head .. known, life > 0 or 'reset', life
end
