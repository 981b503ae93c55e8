-- The low-water marks of a key: see low_water.go. They follow the words of a state, in 7 bytes
-- each: since, the unit of levels, and for each mark its instant and its level, ascending.

-- @load
-- Splits value into the words of the state and ext, the marks. The length says if there are any.
if value and #value > 18 and #value < 270 and #value % 2 == 0 and (#value - 12) % 14 < 7 then
  local words = 12 + (#value - 12) % 14
  local _, unit = unpack('>I7I7', value, words + 1)
  if unit > 0 and unit < 9007199254740992 then
    ext, value = string.sub(value, words + 1), string.sub(value, 1, words)
  end
end

-- @read
-- Sets low, the numbers of ext, with levels in units of 1/den, and last, how many there are.
last = #ext / 7
low = {unpack('>' .. string.rep('I7', last), ext)}
if low[2] ~= den then
  for i = 4, last, 2 do
    low[i] = floor(low[i] / low[2]) * den
  end
  low[2] = den
end

-- @write
ext = pack('>' .. string.rep('I7', last), spread(low, 1, last))

-- @save
-- Notes the level before units were added. Uses den, level and refundable.
if not ext then
  if refundable then
    ext = pack('>I7I7', now, den)
  end
elseif used > aged then
  if aged == 0 and not refundable then
    ext = nil
  elseif level <= 0 then
    ext = pack('>I7I7', now, den)
  else
    local size, at, last_at, last_level, _, unit = #ext, now, 0, 0, unpack('>I7I7', ext)
    local low, last
    if unit ~= den then
      -- @include low_water read
      -- @include low_water write
    end
    if size > 14 then
      last_at, last_level = unpack('>I7I7', ext, size - 13)
      at = max(now, last_at)
    end
    while size > 14 and last_level >= level do
      size = size - 14
      if size > 14 then
        last_at, last_level = unpack('>I7I7', ext, size - 13)
      end
    end
    ext = string.sub(ext, 1, size)
    if size == 14 or last_at < at then -- no instant lies between two equal ones
      if size >= 14 + 14 * 16 then
        -- @include low_water read
        while last > 2 + 2 * 14 do
          local best, ratio = 4, -1
          for i = 4, last - 2, 2 do
            local r = low[i] / low[i + 2]
            if r > ratio then
              best, ratio = i, r
            end
          end
          low[best - 1] = low[best + 1]
          table.remove(low, best + 1)
          table.remove(low, best + 1)
          last = last - 2
        end
        -- @include low_water write
      end
      ext = ext .. pack('>I7I7', at, level)
    end
  end
end

-- @least
-- Sets least, the least level since an instant; level is the current one. Declares low and last.
local least, low, last = 0, nil, 0
if ext and since >= unpack('>I7', ext) then
  -- @include low_water read
  least = level
  for i = last, 4, -2 do
    if low[i - 1] > since then
      least = min(low[i], level)
    end
  end
end

-- @refund
-- Takes gone units, charged at since, out of the history, which least may have read.
if ext then
  if not low then
    -- @include low_water read
  end
  local kept = 2
  for i = 4, last, 2 do
    local m = low[i - 1] > since and max(0, low[i] - gone) or min(low[i], max(0, least - gone))
    if kept > 2 and low[kept] == m then
      kept = kept - 2
    end
    low[kept + 1], low[kept + 2], kept = low[i - 1], m, kept + 2
  end
  last = kept
  -- @include low_water write
end
