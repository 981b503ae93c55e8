local request, foreign = ARGV[1], 0
local rules, acts, pos = unpack('>I2I2', request)
local rule_of = {0}
-- What only a log needs.
local entry, opened, search
for r = 1, rules do
  local rule = {unpack('>BBI7I7I7I7I7I7I7', request, pos)}
  pos = rule[10]
  rule[10] = ARGV[r + 1]
  rule_of[r] = rule
  if rule[1] == LOG and not search then
    -- @include sliding_log functions
  end
end

-- Read: the state of each key, brought to now. A table that has to grow costs more
-- than one that is made with some room.
local RULE, AT, USED, REM = {0, 0, 0, 0}, {0, 0, 0, 0}, {0, 0, 0, 0}, {0, 0, 0, 0}
local AGED, EXT, DIRTY = {0, 0, 0, 0}, {0, 0, 0, 0}, {0, 0, 0, 0}
local values, missing = nil, {}
if #KEYS > 1 then
  values = call('MGET', spread(KEYS))
end
for k = 1, #KEYS do
  local key, r = KEYS[k], nil
  r, pos = unpack('>I2', request, pos)
  local at, used, rem, ext, clamped = 0, 0, 0, nil, false
  local rule = rule_of[r]
  if r == 0 then
    -- The record of an id: its text.
    rule, ext = false, values[k]
    local n, status = ext and #ext - 16 or 36, ext and string.byte(ext) or 1
    local whole = status % 8 > 4 and 57 or 36
    if not ext then
      missing[#missing + 1] = key
    elseif n < 36 or status > 14 or n % whole > 0 and (n - 16) % (whole + 36) > 0 then
      foreign, ext = foreign + 1, false
    end
  else
    local id, flags, burst, cap, p, q, x, y = rule[1], rule[2], rule[3], rule[4], rule[6], rule[7], rule[8], rule[9]
    local value
    if id == LOG or id == CONCURRENCY then
      value = nil
    elseif values then
      value = values[k]
      if not value then
        missing[#missing + 1] = key
      end
    else
      value = redis.pcall('GET', key)
      if value and value.err then
        foreign = foreign + 1
        value = false
      end
    end
    -- @age
  end
  local dirty, aged = clamped, used
  RULE[k], AT[k], USED[k], REM[k], AGED[k], EXT[k], DIRTY[k] = rule, at, used, rem, aged, ext, dirty
end
if #missing > 0 then
  -- They hold another type than a string, if anything.
  foreign = foreign + call('EXISTS', spread(missing))
end

-- Decide: used grows by what is granted.
local reply, answers, outside = {0}, 0, false
local DECISION = '>BI7I7I7I7I7'
-- What only acts need that are no runs.
local KEY, COST, SUM, REFUSED, DELAY, pending, waits, queued, holds, charges

for a = 1, acts do
  local kind, n, flags
  kind, n, flags, pos = unpack('>BBB', request, pos)
  answers = answers + 1
  if flags == 4 then
    local k
    k, pos = unpack('>I2', request, pos)
    local key, rule, at, used, rem, aged, ext = KEYS[k], RULE[k], AT[k], USED[k], REM[k], AGED[k], EXT[k]
    local id, flags, burst, debt, p, q, x, y = rule[1], rule[2], rule[3], rule[5], rule[6], rule[7], rule[8], rule[9]
    -- @run
    outside = outside or flags % 8 >= 4 and (now < p or now >= y)
    if outside then
      reply[answers] = pack('>BI7', 6, now)
    else
      USED[k] = used
      reply[answers] = pack('>BI7I7I7I7I7', 0, now, granted, first, was, second)
    end
  else
    if not KEY then
      KEY, COST, SUM, REFUSED, DELAY, pending = {0, 0}, {0, 0}, {0, 0}, {0, 0}, {0, 0}, {}
      -- waits returns how long until so many units fit key k, which they do not now.
      function waits(k, cost)
        local key, rule, at, used, rem, aged, ext, wait = KEYS[k], RULE[k], AT[k], USED[k], REM[k], AGED[k], EXT[k], 0
        local id, flags, burst, p, q, x, y = rule[1], rule[2], rule[3], rule[6], rule[7], rule[8], rule[9]
        -- @wait
        return wait
      end

      -- queued returns how long what comes after so many units more has to wait.
      function queued(k, units)
        local rule, at, used, rem, fresh = RULE[k], AT[k], min(USED[k] + units, RULE[k][4]), REM[k], 0
        local p, q, x = rule[6], rule[7], rule[8]
        -- @include leaky_bucket delay
        return fresh
      end

      -- holds reports whether the lease of a holder of key k lasts.
      function holds(k, holder)
        local till = EXT[k][holder]
        if not till and not EXT[k][1] then
          till = tonumber(call('ZSCORE', KEYS[k], holder) or 0)
        end
        return till and till > now
      end

      -- charges packs what is charged for each charge of an act.
      function charges(units, since, delay, n)
        local parts = {}
        for i = 1, n do
          parts[i] = pack('>I7I7I7', units[i] or 0, since[i] or now, delay[i] or 0)
        end
        return table.concat(parts)
      end
    end
    local record, life, brief, longest, lease, what, holder = 0, 0, 0, 0, 0, nil, nil
    if flags % 2 == 1 then
      record, life, brief, longest, lease, what, holder, pos = unpack('>I2I7I7I7I7c8c16', request, pos)
    end
    local immediate = flags % 4 >= 2
    local top = answers
    local first, most = pos, 0
    for i = 1, n do
      KEY[i], COST[i], most, pos = unpack('>I2I7I7', request, pos)
      if kind == 1 then
        pos = pos + 14
      elseif kind == 7 then
        pos = pos + 22
      end
    end

    -- What is known of the id.
    local code, known, answered = 0, record > 0 and EXT[record], nil
    local size, tail, closed, amended = 16 + 36 * n, 16 + 36 * n, nil, nil
    if known then
      local status, what_was = unpack('>Bc8', known)
      amended = status > 8
      if status % 8 > 4 then
        tail = size + 21 * n
      end
      status = status % 4
      closed = #known > tail and string.byte(known, tail + 1)
      if kind == 0 then
        if what_was ~= what then
          code = 2
        elseif closed == 3 then
          code = 4
        else
          answered = string.sub(known, 10, size)
        end
      elseif kind == 7 then
        if what_was ~= what then
          code = 2
        elseif closed or amended and flags >= 8 then
          -- What it was granted was settled or given back; or is what a caller was told.
          answered = string.sub(known, 10, size)
        end
      elseif status ~= 1 then
        code = 1
      elseif closed == kind and string.sub(known, tail + 2, tail + 9) == what then
        answered = string.sub(known, tail + 10)
      elseif closed then
        code = closed == 3 and 4 or 3
      end
    elseif record > 0 and kind > 0 and kind < 7 then
      code = 1
    end
    for i = 1, n do
      local rule = RULE[KEY[i]]
      outside = outside or rule[2] % 8 >= 4 and (now < rule[6] or now >= rule[9])
    end
    if outside then
      -- Later acts wait for this one.
      code, answered = 6, nil
    end

    if code == 0 and not answered and kind == 0 then
      local fits, owed = flags < 8, nil
      for i = 1, n do
        local k = KEY[i]
        local cost = (pending[k] or 0) + COST[i]
        pending[k] = cost
        local rule, used = RULE[k], USED[k]
        local refused, delay = COST[i] > 0 and used + cost > rule[3], 0
        if rule[1] == LEAKY and not refused and COST[i] > 0 then
          delay = queued(k, cost - COST[i])
          refused = delay > 0 and (immediate or longest > 0 and delay > longest)
        elseif refused and rule[1] ~= LEAKY and longest > 0 and cost <= rule[3] and used + cost <= rule[4] then
          delay = waits(k, cost)
          refused = delay > longest
        end
        SUM[i], REFUSED[i], DELAY[i] = cost, refused, delay
        fits = fits and not refused
      end
      if fits and most > 0 then
        for i = 1, n do
          local k = KEY[i]
          most = min(most, floor((RULE[k][3] - USED[k]) / (pending[k] / COST[i])))
        end
      end
      for i = 1, n do
        local k, cost = KEY[i], COST[i]
        if fits then
          if most > 0 then
            cost = most
            COST[i] = most
          end
          if RULE[k][1] == CONCURRENCY and cost > 0 then
            if holds(k, holder) then
              cost = 0
            end
            EXT[k][holder], DIRTY[k] = now + RULE[k][7], true
          end
          USED[k] = USED[k] + cost
        elseif REFUSED[i] and RULE[k][2] % 2 == 1 then
          local was = USED[k]
          USED[k] = max(was, min(was + cost, RULE[k][5]))
          owed = owed or {}
          owed[i] = USED[k] - was
        end
        pending[k] = 0
      end
      for i = 1, n do
        local k, cost, outcome, granted, wait, fresh, delay = KEY[i], SUM[i], 3, 0, 0, 0, 0
        local key, rule, at, used, rem, aged, ext = KEYS[k], RULE[k], AT[k], USED[k], REM[k], AGED[k], EXT[k]
        local id, flags, burst, p, q, x, y = rule[1], rule[2], rule[3], rule[6], rule[7], rule[8], rule[9]
        if fits then
          outcome, granted, delay = 1, COST[i], DELAY[i]
        elseif REFUSED[i] then
          outcome = cost > burst and 4 or 2
          local own = cost - COST[i]
          if own > 0 and id == LEAKY and (immediate or longest > 0 and -floor(-own * q / p) * x - x + 1 > longest) then
            -- What the act itself queues before takes longer than the charge can wait.
            outcome = 4
          end
          if outcome == 2 and used + cost > burst then
            wait = waits(k, cost)
          end
          if outcome == 2 and id == LEAKY and (immediate or longest > 0) then
            wait = max(wait, queued(k, cost - COST[i]) - (immediate and 0 or longest))
          elseif outcome == 2 and longest > 0 then
            wait = wait - longest
            if used + cost > rule[4] then
              wait = max(wait, waits(k, cost + burst - rule[4]))
            end
          end
        end
        -- @fresh
        local room = max(0, burst - used)
        if immediate and id == LEAKY and used > 0 then
          room = 0
        end
        answers = answers + 1
        reply[answers] = pack(DECISION, outcome, granted, room, wait, fresh, delay)
      end
      if record > 0 and (fits or brief > 0) then
        known = pack('>Bc8I7', fits and 1 or owed and 6 or 2, what, now) .. table.concat(reply, '', top + 1, answers)
        if owed then
          known = known .. charges(owed, {}, {}, n)
        end
        EXT[record], DIRTY[record], USED[record] = known, true, fits and life or brief
      end
    elseif code == 0 and not answered then
      -- What is no take comes in a call of its own.
      -- give takes up to so many units of a whole grant back from key k and returns
      -- how much room that makes.
      local function give(k, units, whole, since, delay)
        local key, rule, at, used, rem, aged, ext = KEYS[k], RULE[k], AT[k], USED[k], REM[k], AGED[k], EXT[k]
        local id, flags, burst, cap, p, q, x, y = rule[1], rule[2], rule[3], rule[4], rule[6], rule[7], rule[8], rule[9]
        local back = 0
        if id == CONCURRENCY then
          if units > 0 and holds(k, holder) then
            ext[holder], used, back = 0, used - 1, 1
          end
        elseif units > 0 then
          -- @back
        end
        AT[k], USED[k], REM[k], AGED[k], EXT[k] = at, used, rem, aged - back, ext
        return back
      end
      -- owe charges units to key k up to its debt, and returns how many.
      local function owe(k, units)
        local used = USED[k]
        if RULE[k][1] ~= CONCURRENCY then
          USED[k] = max(used, min(used + units, RULE[k][5]))
        end
        return USED[k] - used
      end

      -- put charges units to key k that may not fit, or gives the holder a slot.
      local function put(k, units)
        if RULE[k][1] ~= CONCURRENCY then
          return owe(k, units)
        end
        if not holds(k, holder) then
          USED[k] = USED[k] + 1
        end
        EXT[k][holder], DIRTY[k] = now + RULE[k][7], true
        return 1
      end

      -- What is charged, since when, and from how much later on.
      local held, since, delay, answer = {}, {}, {}, known and unpack('>I7', known, 10)
      for i = 1, n do
        local k, was = KEY[i], COST[i]
        held[i], since[i], delay[i] = kind < 7 and was or 0, now, 0
        if known then
          local _, granted, _, _, _, late = unpack(DECISION, known, 17 + 36 * (i - 1))
          was, held[i], since[i], delay[i] = granted, granted, answer, late
          if tail > size then
            held[i], since[i], delay[i] = unpack('>I7I7I7', known, size + 1 + 21 * (i - 1))
          end
        end
        if kind == 1 and COST[i] > was then
          code = 5
        elseif kind == 4 and RULE[k][1] == CONCURRENCY and held[i] > 0 and not holds(k, holder) then
          code = 1
        end
      end
      -- The last first: what an act has booked twice stands in line behind itself.
      for i = code == 0 and n or 0, 1, -1 do
        local k, cost, was, at, late, granted = KEY[i], COST[i], held[i], since[i], delay[i], 0
        DIRTY[k] = DIRTY[k] or kind < 7
        if kind == 1 then
          if not known then
            at, late = unpack('>I7I7', request, first + 30 * i - 14)
          end
          granted = give(k, min(cost, was), was, at, late)
        elseif kind == 2 and cost < was then
          give(k, was - cost, was, at, late)
          granted = cost
        elseif kind == 2 then
          granted = was + owe(k, cost - was)
        elseif kind == 3 then
          granted = give(k, was, was, at, late)
        elseif kind == 4 and RULE[k][1] == CONCURRENCY and was > 0 then
          EXT[k][holder], granted = now + (lease > 0 and lease or RULE[k][7]), 1
        elseif kind == 5 then
          AT[k], USED[k], REM[k], AGED[k], EXT[k], DIRTY[k] = now, 0, 0, 0, false, 'reset'
        elseif kind == 6 then
          granted = owe(k, cost)
        elseif kind == 7 then
          local outcome, due, _, later = unpack('>BI7I7I7', request, first + 38 * i - 22)
          if outcome ~= 1 then
            due = outcome ~= 3 and RULE[k][2] % 2 == 1 and cost or 0
          end
          if due < was then
            give(k, was - due, was, at, late)
            DIRTY[k], held[i] = true, due
          elseif due > was then
            if was == 0 then
              since[i], delay[i] = now, later
            end
            held[i] = was + put(k, due - was)
          end
          granted = outcome == 1 and held[i] or 0
        end
        COST[i] = granted
      end
      local told, status = {}, flags < 8 and 13 or 5
      for i = 1, code == 0 and n or 0 do
        local k, fresh = KEY[i], 0
        local key, rule, at, used, rem, aged, ext = KEYS[k], RULE[k], AT[k], USED[k], REM[k], AGED[k], EXT[k]
        local id, flags, burst, p, q, x, y = rule[1], rule[2], rule[3], rule[6], rule[7], rule[8], rule[9]
        if used > 0 then
          -- @fresh
        elseif DIRTY[k] then
          -- As good as new: better not to keep it.
          DIRTY[k] = 'reset'
        end
        answers = answers + 1
        local outcome, room, wait, late = 1, max(0, burst - used), 0, 0
        if kind == 7 then
          local units
          outcome, units, wait, late = unpack('>BI7I7I7', request, first + 38 * i - 22)
          if immediate and id == LEAKY and used > 0 then
            room = 0
          end
          if outcome ~= 1 then
            status = status - status % 4 + 2
          end
          told[i] = pack(DECISION, outcome, units, room, wait, fresh, late)
        end
        reply[answers] = pack(DECISION, outcome, COST[i], room, wait, fresh, late)
      end
      if kind == 7 and code == 0 then
        known = pack('>Bc8I7', status, what, answer or now) .. table.concat(told) .. charges(held, since, delay, n)
      end
      if known and code == 0 then
        if kind < 4 then
          known = known .. pack('>Bc8I7', kind, what, now) .. table.concat(reply, '', top + 1, answers)
        end
        if status % 4 == 1 then
          -- A hold outlives what is done to it meanwhile.
          life = max(life, call('PTTL', KEYS[record]))
        else
          life = brief
        end
        EXT[record], DIRTY[record], USED[record] = known, life > 0 or 'reset', life
      end
    end
    if answered then
      reply[top] = (amended and '\7' or '\0') .. answered
    else
      reply[top] = pack('>BI7', code, now)
    end
  end
end

-- @before
-- Write: what has changed, once a key.
for k = 1, #KEYS do
  local key, rule, at, used, rem, aged, ext, dirty = KEYS[k], RULE[k], AT[k], USED[k], REM[k], AGED[k], EXT[k], DIRTY[k]
  if dirty == 'reset' then
    call('DEL', key)
  elseif not rule then
    if dirty then
      call('SET', key, ext, 'PX', used)
    end
  elseif dirty or used ~= aged then
    local id, flags, burst, p, q, x, y, life, value = rule[1], rule[2], rule[3], rule[6], rule[7], rule[8], rule[9], rule[10], nil
    if used > burst then
      local fresh = 0
      -- @fresh
      life = lifetime(fresh)
    end
    -- @save
    if value then
      call('SET', key, value, 'PX', life)
    end
  end
end
-- @after
return pack('>I2', foreign) .. table.concat(reply)
