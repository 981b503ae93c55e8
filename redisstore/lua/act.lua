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

local LOG = 2 -- sliding_log is no string
local request, foreign = ARGV[1], 0
local rules, acts, pos = unpack('>I2I2', request)
local rule_of = {0}
for r = 1, rules do
  local rule = {unpack('>BBI7I7I7I7I7I7', request, pos)}
  pos = rule[9]
  rule[9] = ARGV[r + 1]
  rule_of[r] = rule
end

-- Read: the state of each key, brought to now.
local RULE, AT, USED, REM, AGED, EXT, CLAMPED = {0}, {0}, {0}, {0}, {0}, {0}, {0}
local KEY, COST, SUM, REFUSED, pending = {0}, {0}, {0}, {0}, {0}
local values
if #KEYS > 1 then
  values = call('MGET', spread(KEYS))
end
for k = 1, #KEYS do
  local key, r = KEYS[k], nil
  r, pos = unpack('>I2', request, pos)
  local rule = rule_of[r]
  local id, flags, burst, cap, p, q, x, y = rule[1], rule[2], rule[3], rule[4], rule[5], rule[6], rule[7], rule[8]
  local at, used, rem, ext, clamped = 0, 0, 0, nil, false
  local value
  if values then
    value = values[k]
    if not value and id ~= LOG and call('EXISTS', key) == 1 then
      foreign = foreign + 1
    end
  elseif id ~= LOG then
    value = redis.pcall('GET', key)
    if value and value.err then
      foreign = foreign + 1
      value = false
    end
  end
  -- @age
  pending[k] = 0
  RULE[k], AT[k], USED[k], REM[k], AGED[k], EXT[k], CLAMPED[k] = rule, at, used, rem, used, ext, clamped
end

-- Decide: used grows by what is granted.
local reply = {0}
local answers = 0
for a = 1, acts do
  local _, n, most
  _, n, pos = unpack('>BB', request, pos)
  local fits = true
  for i = 1, n do
    local k, cost
    k, cost, most, pos = unpack('>I2I7I7', request, pos)
    local sum = pending[k] + cost
    pending[k] = sum
    local refused = cost > 0 and USED[k] + sum > RULE[k][3]
    KEY[i], COST[i], SUM[i], REFUSED[i] = k, cost, sum, refused
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
    elseif REFUSED[i] and RULE[k][2] % 2 == 1 then
      USED[k] = min(USED[k] + cost, 9007199254740991)
    end
    pending[k] = 0
  end
  for i = 1, n do
    local k, cost, outcome, granted, wait, fresh = KEY[i], SUM[i], 3, 0, 0, 0
    local key, rule, at, used, rem, aged, ext = KEYS[k], RULE[k], AT[k], USED[k], REM[k], AGED[k], EXT[k]
    local id, flags, burst, p, q, x = rule[1], rule[2], rule[3], rule[5], rule[6], rule[7]
    if fits then
      outcome, granted = 1, COST[i]
    elseif REFUSED[i] and cost > burst then
      outcome = 4
    elseif REFUSED[i] then
      outcome = 2
      -- @wait
    end
    -- @fresh
    answers = answers + 1
    reply[answers] = pack('>BI7I7I7I7', outcome, granted, max(0, burst - used), wait, fresh)
  end
end

-- Write: what has changed, once a key.
for k = 1, #KEYS do
  local used, aged = USED[k], AGED[k]
  if used ~= aged or CLAMPED[k] then
    local key, rule, at, rem, ext, value, fresh = KEYS[k], RULE[k], AT[k], REM[k], EXT[k], nil, 0
    local id, flags, burst, p, q, x = rule[1], rule[2], rule[3], rule[5], rule[6], rule[7]
    if used > burst then
      -- @fresh
    end
    -- @save
  end
end
return pack('>I7I2', now, foreign) .. table.concat(reply)
