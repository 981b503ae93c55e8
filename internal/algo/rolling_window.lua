-- rolling_window: see rolling_window.go. p, q, x = buckets, period, width. A
-- string: bytes a counter (2, 3 or 4), period, instant, total, then the counters.
-- ext = {the string, bytes a counter}.

-- @age
local slots, period, width = p + 1, q, x
local head, bytes, was, total = value and #value or 0, 0, 0, 0
if head > 20 then
  bytes, was, at, total = unpack('>BI7I7I5', value)
end
local old = bytes > 1 and bytes < 5 and (head - 20) / bytes or 0
if old < 3 or old > 3601 or old % 1 > 0 or was < 1000 then
  if value then
    foreign = foreign + 1
  end
  at, used, ext = now, 0, {false, cap < 65536 and 2 or cap < 16777216 and 3 or 4}
else
  clamped, used = at > now, total
  local wide = max(cap, total)
  local fit = wide < 65536 and 2 or wide < 16777216 and 3 or 4
  local layout = '>I' .. bytes
  if clamped or was ~= period or old ~= slots or bytes ~= fit then
    -- pour
    local counts, stride, first = {}, -floor(-was / (old - 1)), floor(max(0, now - period) / width)
    for i = 1, slots do
      counts[i] = 0
    end
    used = 0
    for i = floor(max(0, at - was) / stride), floor(at / stride) do
      local n = unpack(layout, value, 21 + i % old * bytes)
      local here = floor(min((i + 1) * stride - 1, at, now) / width)
      if n > 0 and here >= first then
        counts[here % slots + 1] = counts[here % slots + 1] + n
        used = used + n
      end
    end
    at, bytes = now, fit
    for i = 1, slots do
      counts[i] = pack('>I' .. bytes, counts[i])
    end
    value = string.rep('\0', 20) .. table.concat(counts)
  else
    local first = floor(max(0, now - period) / width)
    for i = floor(max(0, at - period) / width), min(first - 1, floor(at / width)) do
      used = used - unpack(layout, value, 21 + i % slots * bytes)
    end
  end
  ext = {value, bytes}
end

-- @wait
local slots, width, here = p + 1, x, floor(now / x)
local leave, first, last = used + cost - burst, floor(max(0, now - q) / x), floor(at / x)
for i = first, here do
  if ext[1] and i <= last then
    leave = leave - unpack('>I' .. ext[2], ext[1], 21 + i % slots * ext[2])
  end
  if i == here then
    leave = leave - (used - aged)
  end
  if leave <= 0 then
    here = i
    break
  end
end
wait = (here + 1) * width + q - now

-- @fresh
if used > 0 then
  local slots, width = p + 1, x
  local i = floor(now / width)
  if used == aged then
    i = floor(at / width)
    for _ = 1, p do
      if unpack('>I' .. ext[2], ext[1], 21 + i % slots * ext[2]) > 0 then
        break
      end
      i = i - 1
    end
  end
  fresh = (i + 1) * width + q - now
end

-- @delay

-- @back
local slots, width = p + 1, x
local i, first = floor(since / width), max(floor(max(0, now - q) / width), floor(max(0, at - q) / width))
if newest then
  i = min(i, floor(at / width))
end
if ext[1] and since <= now and i >= first and i <= floor(at / width) then
  local layout = '>I' .. ext[2]
  repeat
    local body, slot = ext[1], 21 + i % slots * ext[2]
    local count = unpack(layout, body, slot)
    local n = min(units - back, count, used)
    if n > 0 then
      ext[1] = string.sub(body, 1, slot - 1) .. pack(layout, count - n) .. string.sub(body, slot + ext[2])
      used, back = used - n, back + n
    end
    i = i - 1
  until not newest or i < first or back == units
end

-- @save
local slots, period, width = p + 1, q, x
local body, bytes = ext[1], ext[2]
if not body then
  body = string.rep('\0', 20 + slots * bytes)
end
local first, last = floor(max(0, at - period) / width), floor(at / width)
last = min(floor(max(0, now - period) / width) - 1, last)
while first <= last do
  -- As many as lie side by side in the string.
  local from = first % slots
  local n = min(last - first + 1, slots - from)
  body = string.sub(body, 1, 20 + from * bytes) .. string.rep('\0', n * bytes) .. string.sub(body, 21 + (from + n) * bytes)
  first = first + n
end
local slot = 21 + floor(now / width) % slots * bytes
local layout = '>I' .. bytes
local count = pack(layout, unpack(layout, body, slot) + used - aged)
value = pack('>BI7I7I5', bytes, period, now, used) .. string.sub(body, 21, slot - 1) .. count .. string.sub(body, slot + bytes)
