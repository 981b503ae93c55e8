-- Decides takes of one charge each without an id or a longest wait, under algorithms whose
-- state is one string and without calendars. act.lua could decide them too, but slower.
--
-- KEYS[k]    the state of one key, in the order of the request, each once
-- ARGV[1]    the request, packed big-endian:
--              rules, keys without those of rolling windows, which come last  I2 I2
--              a rule, as in head.lua, and the number of its keys, at least 1
--                                      B B I7 I7 I7 I7 I7 I7 I7 I2
--              each followed by its keys, a key being its runs, at least one:
--                a run, as in head.lua, with one flag more (4 another run of the
--                same key follows)                           B I2 I7 (I7) (I7)
-- ARGV[1+r]  time to live of a key under rule r without debt, in ms, decimal
--
-- Reply: one string, packed big-endian:
--              keys that held something foreign, at          I2 I7
--              a run, as in head.lua                         I7 I7 I7 I7
local request, foreign, n, refundable = ARGV[1], 0, #KEYS, false
local rules, texts, pos = unpack('>I2I2', request)
-- Tables cost more than the arithmetic, so a single key uses none.
local one, values, lives, only, parts, tally, latest, bucket, spot, whole
-- The reply, as numbers: packing them run by run costs more.
local reply, filled
if texts < n then
  -- @include rolling_window functions
end
if n > 1 then
  values, lives, parts, reply, filled = texts > 0 and call('MGET', spread(KEYS, 1, texts)) or {}, {}, {}, {}, 0
  local missing
  for k = 1, texts do
    if not values[k] then
      missing = missing or {}
      missing[#missing + 1] = KEYS[k]
    end
  end
  if missing then
    -- MGET finds nothing where a key is missing or holds another type than a string.
    foreign = call('EXISTS', spread(missing))
  end
elseif texts > 0 then
  one = redis.pcall('GET', KEYS[1])
  if one and one.err then
    foreign, one = 1, false
  end
end

local k = 0
for r = 1, rules do
  local id, flags, burst, cap, debt, p, q, x, y, keys
  id, flags, burst, cap, debt, p, q, x, y, keys, pos = unpack('>BBI7I7I7I7I7I7I7I2', request, pos)
  for _ = 1, keys do
    k = k + 1
    local value, at, used, rem, ext, clamped = one, 0, 0, 0, nil, false
    if values then
      value = values[k]
    end
    -- @age
    local dirty, aged = clamped, used
    repeat
      -- @section run
      if not reply and how % 8 >= 4 then
        reply, filled = {}, 0
      end
      if reply then
        reply[filled + 1], reply[filled + 2], reply[filled + 3], reply[filled + 4] = granted, first, was, second
        filled = filled + 4
      else
        only = pack('>I2I7I7I7I7I7', foreign, now, granted, first, was, second)
      end
    until how % 8 < 4
    if dirty or used ~= aged then
      local key, life, patches = KEYS[k], ARGV[r + 1], nil
      if used > burst then
        local fresh = 0
        -- @fresh
        life = lifetime(fresh)
      end
      -- @save
      if values then
        values[k], lives[k], parts[k] = value, life, patches
      else
        -- @section put
      end
    end
  end
end
if only then
  return only
end

-- Write each changed key once.
for k = 1, values and n or 0 do
  local key, value, life, patches = KEYS[k], values[k], lives[k], parts[k]
  if life ~= nil then
    -- @section put
  end
end
return pack('>I2I7' .. string.rep('I7', filled), foreign, now, spread(reply))
