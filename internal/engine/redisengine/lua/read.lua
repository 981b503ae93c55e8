-- Reads the limits in force and the state of every key, brought to now.
-- Sets acts (how many follow), pos (where they begin in the request), foreign, and per
-- key k: RULE (false for the record of an id), AT, USED, REM and EXT as the algorithm's
-- file describes them, AGED (used, as the call has found it) and DIRTY (to be written).
local rules, acts, pos = unpack('>I2I2', request)
local rule_of = {0}
-- Only a log needs the first three of these, and only a rolling window the others.
local entry, opened, search, tally, latest, bucket, spot, whole
for r = 1, rules do
  local rule = {unpack('>BBI7I7I7I7I7I7I7', request, pos)}
  pos = rule[10]
  rule[10] = ARGV[r + 1]
  rule_of[r] = rule
  if rule[1] == LOG and not search then
    -- @include sliding_log functions
  end
  if rule[1] == RING and not tally then
    -- @include rolling_window functions
  end
end

-- A table that has to grow costs more than one that is made with some room.
local RULE, AT, USED, REM = {0, 0, 0, 0}, {0, 0, 0, 0}, {0, 0, 0, 0}, {0, 0, 0, 0}
local AGED, EXT, DIRTY, REFUNDABLE = {0, 0, 0, 0}, {0, 0, 0, 0}, {0, 0, 0, 0}, {}
local values, missing = nil, {}
if #KEYS > 1 and not tally then
  values = call('MGET', spread(KEYS))
elseif #KEYS > 1 then
  -- A rolling window reads parts of its string only.
  local names, places = {}, {}
  for k = 1, #KEYS do
    local rule = rule_of[unpack('>I2', request, pos + 2 * k - 2)]
    if not rule or rule[1] ~= RING then
      names[#names + 1], places[#places + 1] = KEYS[k], k
    end
  end
  values = {}
  for i, value in ipairs(#names > 0 and call('MGET', spread(names)) or {}) do
    values[places[i]] = value
  end
end
for k = 1, #KEYS do
  local key, r = KEYS[k], nil
  r, pos = unpack('>I2', request, pos)
  local at, used, rem, ext, clamped = 0, 0, 0, nil, false
  local rule = rule_of[r]
  if r == 0 then
    -- The text of a record.
    rule, ext = false, values[k]
    if not ext then
      missing[#missing + 1] = key
    end
  else
    local id, flags, burst, cap, p, q, x, y = rule[1], rule[2], rule[3], rule[4], rule[6], rule[7], rule[8], rule[9]
    local value
    if id == LOG or id == RING or id == CONCURRENCY then
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
  -- MGET finds nothing where a key is missing or holds another type than a string.
  foreign = foreign + call('EXISTS', spread(missing))
end
