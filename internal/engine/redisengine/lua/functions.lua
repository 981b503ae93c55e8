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

-- blocked reports whether the key of charge i is blocked, and blocked_for returns for how long.
function blocked(i)
  return BLOCK and BLOCK[i] > 0 and USED[BLOCK[i]] > 0
end
function blocked_for(i)
  local k, fresh = BLOCK[i], 0
  local at, used, rem, p, q, x = AT[k], USED[k], REM[k], RULE[k][6], RULE[k][7], RULE[k][8]
  -- @include gcra fresh
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

-- find returns which of the names of 8 bytes in a text is name: nil if none is.
function find(text, name)
  for i = 1, #text / 8 do
    if string.sub(text, 8 * i - 7, 8 * i) == name then
      return i
    end
  end
end

-- parse reads a record: nil if the text is none. head.lua has the format.
function parse(text)
  local state, flags, standing, withdrawn, n, ends = string.byte(text, 1, 6)
  if not ends or state < TOMBSTONE or state > CLOSED or flags > 7 or 8 * max(standing, withdrawn) > MOST or (n == 0) ~= (state == TOMBSTONE) then
    return nil
  end
  local pos = 7
  local function cut(bytes)
    pos = pos + bytes
    return string.sub(text, pos - bytes, pos - 1)
  end
  local r = {state = state, firm = flags % 2 == 1, told = flags % 4 >= 2, standing = cut(8 * standing), withdrawn = cut(8 * withdrawn), lines = cut(8 * n)}
  if ends > 0 then
    r.early = cut(16 + 15 * ends)
  end
  if state > TOMBSTONE then
    r.content, r.at, r.decisions = cut(8), cut(7), cut(36 * n)
  end
  if flags >= 4 then
    r.held = cut(21 * n)
  end
  if state == CLOSED then
    r.closed_by, r.closed_as, r.closed_at, r.closing = string.byte(cut(1)), cut(8), cut(7), cut(36 * n)
  end
  return pos == #text + 1 and r or nil
end

-- unparse writes a record.
function unparse(r)
  local n, ends = #r.lines / 8, r.early and (#r.early - 16) / 15 or 0
  local text = string.char(r.state, (r.firm and 1 or 0) + (r.told and 2 or 0) + (r.held and 4 or 0), #r.standing / 8, #r.withdrawn / 8, n, ends) ..
    r.standing .. r.withdrawn .. r.lines .. (r.early or '')
  if r.state == TOMBSTONE then
    return text
  end
  text = text .. r.content .. r.at .. r.decisions .. (r.held or '')
  return r.state == CLOSED and text .. string.char(r.closed_by) .. r.closed_as .. r.closed_at .. r.closing or text
end

-- tombstone returns the tombstone of a record.
function tombstone(r)
  return {state = TOMBSTONE, standing = '', withdrawn = r.withdrawn, lines = '', early = r.early}
end

-- pick returns an instant and the decisions on the act's lines, of those on the lines of a
-- record: an empty one where place is false. Without place, the lines are the same.
function pick(at, decisions, place, n)
  if not place then
    return at .. decisions
  end
  local parts = {at}
  for i = 1, n do
    local j = place[i]
    parts[i + 1] = j and string.sub(decisions, 36 * j - 35, 36 * j) or string.rep('\0', 36)
  end
  return table.concat(parts)
end

-- merge puts the act's parts of a text, of so many bytes for each line, in the place of a
-- record's.
function merge(old, new, size, place)
  if not place then
    return new
  end
  local parts = {}
  for j = 1, #old / size do
    parts[j] = string.sub(old, size * (j - 1) + 1, size * j)
  end
  for i, j in ipairs(place) do
    if j then
      parts[j] = string.sub(new, size * (i - 1) + 1, size * i)
    end
  end
  return table.concat(parts)
end

-- leaves returns how many units of a line are left of a grant that was ended early.
function leaves(early, line, units)
  for i = 17, #early, 15 do
    if string.sub(early, i, i + 7) == line then
      local kind, cost = string.byte(early, 8), unpack('>I7', early, i + 8)
      return kind == RELEASE and 0 or kind == SETTLE and cost or max(0, units - cost)
    end
  end
  return units -- an act leaves lines alone that it does not list
end

-- note has a record written, and left is how long it still lives, in ms.
function note(k, r, life)
  EXT[k], DIRTY[k], USED[k] = life > 0 and unparse(r), life > 0 or 'reset', life
end
function left(k)
  return USED[k] > 0 and USED[k] or max(1, call('PTTL', KEYS[k]))
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
