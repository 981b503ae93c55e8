-- rolling_window: see rolling_window.go. p, q, x = buckets, period, width. A
-- string: bytes a counter (2, 3 or 4), period, instant, total, then the counters.
-- It may have 14 KB, so only the parts that matter are read and written.
-- ext = {whether the string has the rule's shape and is changed in place, bytes a counter, the
-- first and the last bucket that were released and are not zero yet, units by slot where the
-- string has others, or nil, whether the string is replaced}.

-- @functions
-- offset returns a number as a text: passing a number to Redis costs more.
local offsets = {}
local function offset(n)
  offsets[n] = offsets[n] or tostring(n)
  return offsets[n]
end
-- spot is the last place of a counter that was written, or read by itself, and as text: its first and
-- its last byte. The last counter that was read by itself has this key, bucket and number of units.
spot, whole = {}, {[2] = {true, 2, 1, 0}, [3] = {true, 3, 1, 0}, [4] = {true, 4, 1, 0}}
local last_key, last_bucket, last_units

-- bucket returns the units of a bucket of a ring.
function bucket(key, ring, p, i)
  local slot, bytes, counts = i % (p + 1), ring[2], ring[5]
  if counts and counts[slot] then
    return counts[slot]
  elseif not ring[1] then
    return 0
  elseif last_key ~= key or last_bucket ~= i then
    local place = 20 + slot * bytes
    if spot[1] ~= place or spot[2] ~= bytes then
      spot = {place, bytes, tostring(place), tostring(place + bytes - 1)}
    end
    last_key, last_bucket, last_units = key, i, unpack(bytes == 2 and '>I2' or '>I' .. bytes, call('GETRANGE', key, spot[3], spot[4]))
  end
  return last_units
end

-- tally adds up the buckets from i to last of a ring until they have enough units, and returns
-- their sum and the bucket that it ended at. It leaps over buckets without units, and reads the
-- others in strides that double.
function tally(key, ring, p, i, last, enough)
  local kept, bytes, counts = ring[1], ring[2], ring[5]
  if not kept and not counts then
    return 0, last
  end
  local sum, stride, slots, layout, leap = 0, 1, p + 1, bytes == 2 and '>I2' or '>I' .. bytes, i < last
  while i <= last do
    local slot, text = i % slots, nil
    local n = min(last - i + 1, slots - slot) -- lie side by side in the string
    local bit = kept and leap and call('BITPOS', key, '1', offset(20 + slot * bytes), offset(19 + (slot + n) * bytes)) or 0
    if bit < 0 then
      i = i + n
    elseif bit >= 8 * (20 + (slot + 1) * bytes) then
      i, leap = i + floor((bit / 8 - 20) / bytes) - slot, false
    else
      n = min(n, stride)
      if kept then
        text = call('GETRANGE', key, offset(20 + slot * bytes), offset(19 + (slot + n) * bytes))
      end
      leap = true
      for j = 0, n - 1 do
        local units = counts and counts[slot + j] or text and unpack(layout, text, j * bytes + 1) or 0
        sum, leap = sum + units, leap and units == 0
        if sum >= enough then
          return sum, i + j
        end
      end
      i, stride = i + n, min(2 * stride, 512)
    end
  end
  return sum, last
end

-- latest returns the last bucket with units of a ring, from i down to first; first if none has any.
function latest(key, ring, p, i, first)
  local kept, bytes, counts, n, slots = ring[1], ring[2], ring[5], 1, p + 1
  while i > first do
    local slot = i % slots
    n = min(n, slot + 1, i - first)
    if kept and call('BITPOS', key, '1', offset(20 + (slot + 1 - n) * bytes), offset(19 + (slot + 1) * bytes)) < 0 then
      i, n = i - n, 2 * n
    elseif kept and n > 1 then
      n = floor(n / 2)
    elseif counts and counts[slot] == 0 or not kept and not (counts and counts[slot]) then
      i = i - 1
    else
      break
    end
  end
  return i
end

-- @age
local slots, period, width = p + 1, q, x
local head, bytes, was, total, old = redis.pcall('GETRANGE', KEYS[k], '0', '19'), 0, 0, 0, 0
if head.err then
  if not string.find(head.err, '^WRONGTYPE') then
    call('GETRANGE', KEYS[k], '0', '19')
  end
  head = '?'
elseif #head == 20 then
  bytes, was, at, total = unpack('>BI7I7I5', head)
  old = bytes > 1 and bytes < 5 and (call('STRLEN', KEYS[k]) - 20) / bytes or 0
end
if old < 3 or old > 3601 or old % 1 > 0 or was < 1000 then
  if head ~= '' or call('EXISTS', KEYS[k]) == 1 then
    foreign, head = foreign + 1, nil
  end
  at, used, ext = now, 0, {false, cap < 65536 and 2 or cap < 16777216 and 3 or 4, 1, 0, nil, not head}
else
  clamped, used = at > now, total
  local wide = max(cap, total)
  local fit = wide < 65536 and 2 or wide < 16777216 and 3 or 4
  -- Divided without floor, which is a call each time.
  local past, first = now > period and now - period or 0, at > period and at - period or 0
  past, first = (past - past % width) / width, (first - first % width) / width
  if clamped or was ~= period or old ~= slots or bytes ~= fit then
    -- pour
    local body, layout, counts = call('GET', KEYS[k]), '>I' .. bytes, {}
    local stride = -floor(-was / (old - 1))
    used = 0
    for i = floor(max(0, at - was) / stride), floor(at / stride) do
      local n = unpack(layout, body, 21 + i % old * bytes)
      local here = floor(min((i + 1) * stride - 1, at, now) / width)
      if n > 0 and here >= past then
        counts[here % slots] = (counts[here % slots] or 0) + n
        used = used + n
      end
    end
    at, ext = now, {false, fit, 1, 0, counts, true}
  else
    ext = whole[bytes]
    if first < past then
      ext = {true, bytes, first, min(past - 1, floor(at / width))}
      local gone = tally(KEYS[k], ext, p, ext[3], ext[4], math.huge)
      used = used - gone
      if gone == 0 then
        ext[4] = 0
      end
    end
  end
end

-- @wait
-- The units of this call are the newest ones, and then those of the last bucket.
local width, here = x, floor(now / x)
local leave, newest, i = used + cost - burst, floor(at / width), here
if aged >= leave then
  i = newest
  if aged - bucket(KEYS[k], ext, p, newest) >= leave then
    i = select(2, tally(KEYS[k], ext, p, floor(max(0, now - q) / width), newest, leave))
  end
end
wait = (i + 1) * width + q - now

-- @fresh
if used > 0 then
  if used == aged then
    local i = floor(at / x)
    if bucket(KEYS[k], ext, p, i) == 0 then
      i = latest(KEYS[k], ext, p, i, i - p)
    end
    fresh = (i + 1) * x + q - now
  else
    fresh = x - now % x + q
  end
end

-- @delay

-- @back
local slots, width = p + 1, x
local i, first = floor(since / width), max(floor(max(0, now - q) / width), floor(max(0, at - q) / width))
if newest then
  i = min(i, floor(at / width))
end
if since <= now and i >= first and i <= floor(at / width) then
  repeat
    if newest then
      i = latest(KEYS[k], ext, p, i, first)
    end
    local count = bucket(KEYS[k], ext, p, i)
    local n = min(units - back, count, used)
    if n > 0 then
      ext = {ext[1], ext[2], ext[3], ext[4], ext[5] or {}, ext[6]}
      ext[5][i % slots] = count - n
      used, back = used - n, back + n
    end
    i = i - 1
  until not newest or i < first or back == units
end

-- @save
local bytes, slot, count, counts = ext[2], (now - now % x) / x, used - aged, ext[5]
local here = slot == (at - at % x) / x
slot = slot % (p + 1)
local place, layout = 20 + slot * bytes, bytes == 2 and '>I2' or '>I' .. bytes
if spot[1] ~= place or spot[2] ~= bytes then
  spot = {place, bytes, tostring(place), tostring(place + bytes - 1)}
end
if here and counts and counts[slot] then
  count = count + counts[slot]
elseif here and ext[1] then
  count = count + unpack(layout, call('GETRANGE', KEYS[k], spot[3], spot[4]))
end
if ext[6] then
  counts = counts or {}
  counts[slot] = count
  for i = 0, p do
    counts[i] = pack(layout, counts[i] or 0)
  end
  value = pack('>BI7I7I5', bytes, q, now, used) .. table.concat(counts, '', 0, p)
elseif ext[1] then
  if here then
    life = false -- the time to live that the first charge of the bucket has set is long enough
  end
  patches = {spot[3], pack(layout, count), '8', pack('>I7I5', now, used)}
  local from, last, next = ext[3], ext[4], 5
  while from <= last do
    local n = min(last - from + 1, p + 1 - from % (p + 1))
    patches[next], patches[next + 1] = 20 + from % (p + 1) * bytes, string.rep('\0', n * bytes)
    from, next = from + n, next + 2
  end
  if counts then
    for i, n in pairs(counts) do
      patches[next], patches[next + 1], next = 20 + i * bytes, pack(layout, n), next + 2
    end
  end
else
  -- The last byte first gives the string its size, and no more memory.
  patches = {spot[3], pack(layout, count), '0', pack('>BI7I7I5', bytes, q, now, used), 19 + (p + 1) * bytes, '\0'}
end
