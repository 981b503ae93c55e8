-- The least levels of a key since instants of the past: see lows.go. They follow the words of a
-- state: since, and the unit of levels, then points, an instant and a level each, ascending.

-- @load
-- Splits value into the words and ext; the length says whether there is any.
if value and #value > 18 and (#value - 12) % 14 < 7 and #value % 2 == 0 and #value < 270 then
  local words = 12 + (#value - 12) % 14
  local _, unit = unpack('>I7I7', value, words + 1)
  if unit > 0 and unit < 9007199254740992 then
    ext, value = string.sub(value, words + 1), string.sub(value, 1, words)
  end
end

-- @read
-- Sets begin (nil: nothing is known), and WHEN, LEVEL and points, in units of 1/den.
local begin, unit, points, WHEN, LEVEL = nil, 0, 0, {}, {}
if ext then
  begin, unit = unpack('>I7I7', ext)
  for i = 15, #ext, 14 do
    points = points + 1
    WHEN[points], LEVEL[points] = unpack('>I7I7', ext, i)
    if unit ~= den then
      LEVEL[points] = floor(LEVEL[points] / unit) * den
    end
  end
end

-- @write
do
  local parts = {pack('>I7I7', begin, den)}
  for i = 1, points do
    parts[i + 1] = pack('>I7I7', WHEN[i], LEVEL[i])
  end
  ext = table.concat(parts)
end

-- @note
-- Notes the level before units were added: uses den and level. It looks at the last points only.
if ext and used > aged then
  local _, unit = unpack('>I7I7', ext)
  if unit ~= den then
    -- @include lows read
    -- @include lows write
  end
  if level <= 0 then
    ext = pack('>I7I7I7I7', now, den, now, 0)
  else
    local n, when, at, low = (#ext - 14) / 14, now, 0, -1
    if n > 0 then
      at, low = unpack('>I7I7', ext, 1 + 14 * n)
      when = now < at and at + 1 or now
      while n > 0 and low >= level do
        n = n - 1
        if n > 0 then
          at, low = unpack('>I7I7', ext, 1 + 14 * n)
        end
      end
    end
    if n > 0 and at == when then
      ext = string.sub(ext, 1, 14 + 14 * n) -- nothing looks at a second point of one instant
    elseif n >= 12 and level - floor(level / 8) <= low then
      ext = string.sub(ext, 1, 14 * n) .. pack('>I7I7', when, low)
    else
      ext = string.sub(ext, 1, 14 + 14 * n) .. pack('>I7I7', when, level)
    end
    if #ext > 14 + 14 * 16 then
      -- @include lows read
      local best, ratio = 1, -1
      for i = 1, points - 1 do
        local r = LEVEL[i] / LEVEL[i + 1]
        if r > ratio then
          best, ratio = i, r
        end
      end
      table.remove(WHEN, best)
      table.remove(LEVEL, best + 1)
      points = points - 1
      -- @include lows write
    end
  end
end

-- @least
-- Sets least, the least level since an instant; level is the level now.
local least = 0
-- @include lows read
if begin and since >= begin then
  least = level
  for i = points, 1, -1 do
    if WHEN[i] > since then
      least = min(LEVEL[i], level)
    end
  end
end

-- @give
-- Takes gone back from the history.
if begin then
  local all = points
  for i = 1, all do
    LEVEL[i] = WHEN[i] > since and max(0, LEVEL[i] - gone) or min(LEVEL[i], max(0, least - gone))
  end
  points = 0
  for i = 1, all do
    if i == all or LEVEL[i] < LEVEL[i + 1] then
      points = points + 1
      WHEN[points], LEVEL[points] = WHEN[i], LEVEL[i]
    end
  end
  -- @include lows write
end
