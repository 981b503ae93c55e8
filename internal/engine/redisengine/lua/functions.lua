-- Functions and tables of the acts that are no runs, made once such an act comes.
byte, char, sub, concat = string.byte, string.char, string.sub, table.concat
instant, decided = pack('>I7', now), pack('>BI7', 0, now)
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
    if sub(text, 8 * i - 7, 8 * i) == name then
      return i
    end
  end
end

-- parse reads a record: nil if the text is none. head.lua has the format.
function parse(text)
  local state, flags, standing, withdrawn, n, ends = byte(text, 1, 6)
  if not ends or state < TOMBSTONE or state > CLOSED or flags > 7 or 8 * max(standing, withdrawn) > MOST or (n == 0) ~= (state == TOMBSTONE) then
    return nil
  end
  local withdrawing, naming = 7 + 8 * standing, 7 + 8 * standing + 8 * withdrawn
  local pos = naming + 8 * n
  local r = {
    state = state, firm = flags % 2 == 1, told = flags % 4 >= 2, standing = sub(text, 7, withdrawing - 1),
    withdrawn = sub(text, withdrawing, naming - 1), lines = sub(text, naming, pos - 1),
    -- A table that has to grow costs more than one that is made with room.
    early = nil, content = nil, at = nil, decisions = nil, held = nil, closed_by = nil, closed_as = nil, closed_at = nil, closing = nil,
  }
  if ends > 0 then
    r.early, pos = sub(text, pos, pos + 15 + 15 * ends), pos + 16 + 15 * ends
  end
  if state > TOMBSTONE then
    r.content, r.at, r.decisions, pos = sub(text, pos, pos + 7), sub(text, pos + 8, pos + 14), sub(text, pos + 15, pos + 14 + 36 * n), pos + 15 + 36 * n
  end
  if flags >= 4 then
    r.held, pos = sub(text, pos, pos + 21 * n - 1), pos + 21 * n
  end
  if state == CLOSED then
    r.closed_by, r.closed_as, r.closed_at, r.closing = byte(text, pos), sub(text, pos + 1, pos + 8), sub(text, pos + 9, pos + 15), sub(text, pos + 16, pos + 15 + 36 * n)
    pos = pos + 16 + 36 * n
  end
  return pos == #text + 1 and r or nil
end

-- unparse writes a record.
function unparse(r)
  local early = r.early or ''
  local head = char(r.state, (r.firm and 1 or 0) + (r.told and 2 or 0) + (r.held and 4 or 0), #r.standing / 8, #r.withdrawn / 8, #r.lines / 8, r.early and (#early - 16) / 15 or 0)
  if r.state == TOMBSTONE then
    return head .. r.standing .. r.withdrawn .. r.lines .. early
  elseif r.state == CLOSED then
    return head .. r.standing .. r.withdrawn .. r.lines .. early .. r.content .. r.at .. r.decisions .. (r.held or '') ..
      char(r.closed_by) .. r.closed_as .. r.closed_at .. r.closing
  end
  return head .. r.standing .. r.withdrawn .. r.lines .. early .. r.content .. r.at .. r.decisions .. (r.held or '')
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
    parts[i + 1] = j and sub(decisions, 36 * j - 35, 36 * j) or string.rep('\0', 36)
  end
  return concat(parts)
end

-- merge puts the act's parts of a text, of so many bytes for each line, in the place of a
-- record's.
function merge(old, new, size, place)
  if not place then
    return new
  end
  local parts = {}
  for j = 1, #old / size do
    parts[j] = sub(old, size * (j - 1) + 1, size * j)
  end
  for i, j in ipairs(place) do
    if j then
      parts[j] = sub(new, size * (i - 1) + 1, size * i)
    end
  end
  return concat(parts)
end

-- leaves returns how many units of a line are left of a grant that was ended early.
function leaves(early, line, units)
  for i = 17, #early, 15 do
    if sub(early, i, i + 7) == line then
      local kind, cost = byte(early, 8), unpack('>I7', early, i + 8)
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
  return concat(parts)
end
