-- search returns the first index of a log, from low on, whose instant is later
-- than past, or whose sum is at least leave above base; it looks in strides that
-- double.
local function search(key, low, past, base, leave)
  local function found(i)
    local entry = call('LINDEX', key, i)
    if not entry or #entry ~= 10 then
      return true
    end
    local at, sum = unpack('>I7I3', entry)
    if past then
      return at > past
    end
    return (sum - base) % 16777216 >= leave
  end
  local stride = 1
  while not found(low + stride - 1) do
    low = low + stride
    stride = stride * 2
  end
  local high = low + stride - 1
  while low < high do
    local middle = floor((low + high) / 2)
    if found(middle) then
      high = middle
    else
      low = middle + 1
    end
  end
  return low
end

local LOG, LEAKY, CONCURRENCY = 2, 6, 7
local request, foreign = ARGV[1], 0
local rules, acts, pos = unpack('>I2I2', request)
local rule_of = {0}
for r = 1, rules do
  local rule = {unpack('>BBI7I7I7I7I7I7I7', request, pos)}
  pos = rule[10]
  rule[10] = ARGV[r + 1]
  rule_of[r] = rule
end

-- Read: the state of each key, brought to now.
local RULE, AT, USED, REM, AGED, EXT, DIRTY = {0}, {0}, {0}, {0}, {0}, {0}, {0}
local KEY, COST, SUM, REFUSED, DELAY, pending = {0}, {0}, {0}, {0}, {0}, {0}
local values
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
  else
    local id, flags, burst, cap, p, q, x, y = rule[1], rule[2], rule[3], rule[4], rule[6], rule[7], rule[8], rule[9]
    local value
    if id == LOG or id == CONCURRENCY then
      value = nil
    elseif values then
      value = values[k]
      if not value and call('EXISTS', key) == 1 then
        foreign = foreign + 1
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
  pending[k] = 0
  RULE[k], AT[k], USED[k], REM[k], AGED[k], EXT[k], DIRTY[k] = rule, at, used, rem, used, ext, clamped
end

-- Decide: used grows by what is granted.
local reply, answers = {0}, 0
local DECISION = '>BI7I7I7I7I7'

for a = 1, acts do
  local kind, n, flags
  kind, n, flags, pos = unpack('>BBB', request, pos)
  local record, life, longest, lease, whom, what, holder = 0, 0, 0, 0, nil, nil, nil
  if flags % 2 == 1 then
    record, life, longest, lease, whom, what, holder, pos = unpack('>I2I7I7I7c8c8Bc0', request, pos)
  end
  local immediate = flags >= 2
  answers = answers + 1
  local top = answers
  local first, most = pos, 0
  for i = 1, n do
    KEY[i], COST[i], most, pos = unpack('>I2I7I7', request, pos)
    if kind == 1 then
      pos = pos + 14
    end
  end

  -- What is known of the id.
  local code, known, answered = 0, record > 0 and EXT[record], nil
  local size, closed = 24 + 36 * n, nil
  if known and #known < 24 then
    known, foreign = nil, foreign + 1
  end
  if known then
    local status, whom_was, what_was = unpack('>Bc8c8', known)
    closed = #known > size and string.byte(known, size + 1)
    if whom_was ~= whom then
      code = 2
    elseif kind == 0 then
      if what_was ~= what then
        code = 2
      elseif closed == 3 then
        code = 4
      else
        answered = string.sub(known, 18, size)
      end
    elseif status ~= 1 then
      code = 1
    elseif closed == kind and string.sub(known, size + 2, size + 9) == what then
      answered = string.sub(known, size + 10)
    elseif closed then
      code = closed == 3 and 4 or 3
    end
  elseif record > 0 and kind > 0 then
    code = 1
  end
  for i = 1, n do
    local rule = RULE[KEY[i]]
    if code == 0 and rule[2] % 8 >= 4 and (now < rule[6] or now >= rule[9]) then
      code = 6
    end
  end

  if code == 0 and not answered and kind == 0 then
    local fits = true
    for i = 1, n do
      local k = KEY[i]
      local cost = pending[k] + COST[i]
      pending[k] = cost
      local rule, used = RULE[k], USED[k]
      local burst = rule[3]
      local refused, delay = COST[i] > 0 and used + cost > burst, 0
      if rule[1] == LEAKY and not refused and COST[i] > 0 then
        local at, rem, p, q, x, fresh = AT[k], REM[k], rule[6], rule[7], rule[8], 0
        used = used + cost - COST[i]
        -- @include leaky_bucket delay
        delay = fresh
        refused = immediate and delay > 0 or longest > 0 and delay > longest
      elseif refused and rule[1] ~= LEAKY and longest > 0 and cost <= burst and used + cost <= rule[4] then
        local key, at, rem, aged, ext, id, p, q, x, wait = KEYS[k], AT[k], REM[k], AGED[k], EXT[k], rule[1], rule[6], rule[7], rule[8], 0
        -- @wait
        if wait <= longest then
          refused, delay = false, wait
        end
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
        USED[k] = USED[k] + cost
        if RULE[k][1] == CONCURRENCY and cost > 0 then
          EXT[k][holder] = now + RULE[k][7]
        end
      elseif REFUSED[i] and RULE[k][2] % 2 == 1 then
        USED[k] = max(USED[k], min(USED[k] + cost, RULE[k][5]))
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
        if DELAY[i] > 0 then
          wait = DELAY[i] - longest
        elseif outcome == 2 then
          -- @wait
        end
      end
      -- @fresh
      answers = answers + 1
      reply[answers] = pack(DECISION, outcome, granted, max(0, burst - used), wait, fresh, delay)
    end
    if record > 0 then
      known = pack('>Bc8c8I7', fits and 1 or 2, whom, what, now) .. table.concat(reply, '', top + 1, answers)
      EXT[record], DIRTY[record], USED[record] = known, true, life
    end
  elseif code == 0 and not answered then
    -- What is no take comes in a call of its own, so that nothing is written if
    -- it turns out to be an error.
    -- give takes up to so many units back from key k and returns how much room
    -- that makes.
    local function give(k, units, since, delay)
      local key, rule, at, used, rem, aged, ext = KEYS[k], RULE[k], AT[k], USED[k], REM[k], AGED[k], EXT[k]
      local id, flags, burst, cap, p, q, x, y = rule[1], rule[2], rule[3], rule[4], rule[6], rule[7], rule[8], rule[9]
      local back = 0
      if id == CONCURRENCY then
        local till = call('ZSCORE', key, holder)
        if till and tonumber(till) > now and units > 0 then
          ext[holder], used, back = 0, used - 1, 1
        end
      elseif units > 0 then
        -- @back
      end
      AT[k], USED[k], REM[k], AGED[k], EXT[k], DIRTY[k] = at, used, rem, aged - back, ext, true
      return back
    end
    -- owe charges units to key k up to its debt, and returns how many.
    local function owe(k, units)
      local used = USED[k]
      USED[k], DIRTY[k] = max(used, min(used + units, RULE[k][5])), true
      return USED[k] - used
    end

    for i = 1, n do
      local k, cost, granted = KEY[i], COST[i], 0
      local since, delay, held = now, 0, 0
      if known then
        since = unpack('>I7', known, 18)
        local _, was, _, _, _, late = unpack(DECISION, known, 25 + 36 * (i - 1))
        held, delay = was, late
      elseif kind == 1 then
        since, delay = unpack('>I7I7', request, first + 30 * i - 14)
      end
      if kind == 1 and known and cost > held then
        code = 5
      elseif kind == 1 then
        granted = give(k, cost, since, delay)
      elseif kind == 2 and cost < held then
        give(k, held - cost, since, delay)
        granted = cost
      elseif kind == 2 then
        granted = held + owe(k, cost - held)
      elseif kind == 3 then
        granted = give(k, held, since, delay)
      elseif kind == 4 and RULE[k][1] == CONCURRENCY and held > 0 then
        local till = call('ZSCORE', KEYS[k], holder)
        if not till or tonumber(till) <= now then
          code = 1
        else
          EXT[k][holder], DIRTY[k], granted = now + (lease > 0 and lease or RULE[k][7]), true, 1
        end
      elseif kind == 5 then
        AT[k], USED[k], REM[k], AGED[k], EXT[k], DIRTY[k] = now, 0, 0, 0, false, 'reset'
      elseif kind == 6 then
        granted = owe(k, cost)
      end
      COST[i] = granted
    end
    if code > 0 then
      return pack('>I2BI7', foreign, code, now)
    end
    for i = 1, n do
      local k, fresh = KEY[i], 0
      local key, rule, at, used, rem, aged, ext = KEYS[k], RULE[k], AT[k], USED[k], REM[k], AGED[k], EXT[k]
      local id, flags, burst, p, q, x, y = rule[1], rule[2], rule[3], rule[6], rule[7], rule[8], rule[9]
      if used > 0 then
        -- @fresh
      end
      answers = answers + 1
      reply[answers] = pack(DECISION, 1, COST[i], max(0, burst - used), 0, fresh, 0)
    end
    if known then
      if kind < 4 then
        known = known .. pack('>Bc8I7', kind, what, now) .. table.concat(reply, '', top + 1, answers)
      end
      EXT[record], DIRTY[record], USED[record] = known, true, life
    end
  end
  reply[top] = answered and '\0' .. answered or pack('>BI7', code, now)
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
    local id, flags, burst, p, q, x, y, value, fresh = rule[1], rule[2], rule[3], rule[6], rule[7], rule[8], rule[9], nil, 0
    if used > burst then
      -- @fresh
    end
    -- @save
  end
end
-- @after
return pack('>I2', foreign) .. table.concat(reply)
