-- Does an act that is no take: it changes what acts of earlier calls have charged. No other act
-- of the call has its keys; one with the same ID may have its record.
-- Uses kind, n, KEY, COST, BLOCK and blocked_units (nil: no limit has blocks), first (where the charges begin in the request), immediate,
-- elsewhere, dry (only of a renewal or a refund), holder, lease and the act's record. Changes the keys' state, sets code where
-- the act cannot be done, and appends the decisions to reply.

if not give then
  -- @section changing
end

-- What is charged for each charge, since when, and from how much later on: by the record,
-- or else by the act itself.
local held, since, delay, answer = HELD, SINCE, LATER, taken and unpack('>I7', r.at)
-- untouched charges were no part of the take, or are of alternatives that it was not granted (0),
-- or were waived (5).
local untouched, missing = UNTOUCHED, MISSING
for i = 1, n do
  local k, was = KEY[i], COST[i]
  held[i], since[i], delay[i], untouched[i], missing[i] = kind ~= AMEND and was or 0, now, 0, false, false
  local j = i
  if place then
    j = place[i]
  end
  if taken and j then
    local outcome, granted, _, _, _, late = unpack(DECISION, r.decisions, 36 * j - 35)
    was, held[i], since[i], delay[i] = granted, granted, answer, late
    untouched[i] = kind ~= AMEND and (outcome == 0 or outcome == 5) and outcome
    if r.held then
      held[i], since[i], delay[i] = unpack('>I7I7I7', r.held, 21 * j - 20)
    end
  end
  untouched[i] = untouched[i] or taken and not j and 0
  if untouched[i] then
    held[i] = 0
  elseif kind == REFUND and COST[i] > was then
    code = OVER_REFUND
  elseif kind == RENEW and RULE[k][1] == CONCURRENCY and held[i] > 0 and not holds(k, holder) then
    code = LOST
  end
end
if dry and code == 0 then
  code = POSSIBLE
end

-- Change the charges, the last first: what an act has booked twice waits behind itself. An
-- amendment gives units back before it charges others (missing): alternatives may charge one
-- key, and a holder has one slot of it. queue is what the act holds of a key.
local queue = kind == AMEND and {}
for i = code == 0 and n or 0, 1, -1 do
  local k, cost, was, at, late, granted = KEY[i], COST[i], held[i], since[i], delay[i], 0
  DIRTY[k] = DIRTY[k] or kind ~= AMEND and not untouched[i]
  if untouched[i] then
    granted = 0
  elseif kind == REFUND then
    if anonymous then
      at = now
    elseif not taken then
      at, late = unpack('>I7I7', request, first + 30 * i - 14)
    end
    granted = give(k, min(cost, was), was, at, late)
  elseif kind == SETTLE and cost < was then
    give(k, was - cost, was, at, late)
    granted = cost
  elseif kind == SETTLE then
    granted, missing[i] = was, cost - was
  elseif kind == RELEASE or kind == WITHDRAW then
    granted = give(k, was, was, at, late)
  elseif kind == RENEW and RULE[k][1] == CONCURRENCY and was > 0 then
    EXT[k][holder], granted = now + (lease > 0 and lease or RULE[k][7]), 1
  elseif kind == RESET then
    AT[k], USED[k], REM[k], AGED[k], EXT[k], DIRTY[k] = now, 0, 0, 0, false, 'reset'
    if BLOCK and BLOCK[i] > 0 then
      k = BLOCK[i]
      AT[k], USED[k], REM[k], AGED[k], DIRTY[k] = now, 0, 0, 0, 'reset'
    end
  elseif kind == RECORD then
    granted = force(k, cost)
    if BLOCK and BLOCK[i] > 0 then
      USED[BLOCK[i]] = max(USED[BLOCK[i]], min(blocked_units[i], RULE[BLOCK[i]][3]))
    end
  elseif kind == AMEND then
    -- due is what has to be charged after what the caller was told.
    local outcome, due, _, later = unpack('>BI7I7I7', request, first + 38 * i - 22)
    if outcome ~= 1 then
      due = outcome % 2 == 0 and outcome > 0 and RULE[k][2] % 2 == 1 and cost or 0
    elseif r.early and not elsewhere and due > 0 then
      due = leaves(r.early, sub(lines, 8 * i - 7, 8 * i), due)
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
  if missing[i] and kind == SETTLE then
    COST[i] = held[i] + force(KEY[i], missing[i])
  elseif missing[i] then
    held[i] = held[i] + put(KEY[i], missing[i])
    COST[i] = byte(request, first + 38 * i - 22) == 1 and held[i] or 0
  end
end

-- Answer. An amended take's record holds what the caller was told (told).
local told, before, granted = TOLD, 0, kind ~= AMEND
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
  if blocked(i) then
    outcome, room, fresh = 7, 0, max(fresh, blocked_for(i))
  end
  if kind == AMEND then
    local units
    outcome, units, wait, late = unpack('>BI7I7I7', request, first + 38 * i - 22)
    granted = granted or outcome == 1 or outcome == 5
    if untouched[i] then
      outcome, units, wait, late = 0, 0, 0, 0
    elseif elsewhere and id == LEAKY then
      -- The charge waits for fewer units of its own act than it was going to.
      late = min(late, max(0, now - (answer or now)) + queued(k, -queue[k]))
      queue[k], delay[i] = queue[k] - held[i], late
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
  reply[answers] = kind == WITHDRAW and string.rep('\0', 36) or pack(DECISION, outcome, COST[i], room, wait, fresh, late)
end

-- Remember what has become of the take.
if r and code == 0 then
  local decisions, was_open = n == 1 and reply[answers] or concat(reply, '', top + 1, answers), r.state == OPEN
  if kind == AMEND then
    local all = #r.lines > 0 and #r.lines / 8 or n
    if place and not r.held then
      local parts = {}
      for j = 1, all do
        local _, units, _, _, _, late = unpack(DECISION, r.decisions, 36 * j - 35)
        parts[j] = pack('>I7I7I7', units, answer, late)
      end
      r.held = concat(parts)
    end
    r.state, r.told, r.content, r.at = granted and OPEN or DENIED, not elsewhere, content, answer and r.at or instant
    r.lines = #r.lines > 0 and r.lines or lines
    r.decisions, r.held = merge(r.decisions, concat(told, '', 1, n), 36, place), merge(r.held, charges(held, since, delay, n), 21, place)
    r.firm = r.firm or not elsewhere
    if r.early and granted and not elsewhere then
      r.state, r.closed_by, r.closed_as, r.closed_at = CLOSED, byte(r.early, 8), sub(r.early, 9, 16), instant
      r.closing, r.early = merge(string.rep('\0', 36 * all), decisions, 36, place), nil
    end
  elseif kind == WITHDRAW then
    r, granted = tombstone(r), false
  elseif kind == RENEW then
    r.firm, r.early = true, nil
  else
    r.state, r.closed_by, r.closed_as, r.closed_at = CLOSED, kind, content, instant
    r.closing = place and merge(string.rep('\0', 4.5 * #r.lines), decisions, 36, place) or decisions
  end
  if elsewhere and not granted and was_open and (r.early or r.withdrawn ~= '') then
    -- A refused take leaves the tombstone that it found.
    r, refused_life = tombstone(r), max(refused_life, LATE)
  end
  if r.firm then
    r.standing = ''
  end
  -- A hold outlives what is done to it meanwhile.
  note(record, r, granted and max(life, left(record)) or refused_life)
end
