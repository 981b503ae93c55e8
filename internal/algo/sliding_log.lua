-- sliding_log: see sliding_log.go. q = period. A LIST of instants, each with the
-- sum of all grants up to it modulo 2^19, in 9 bytes: 53 bits and 19. Element 0 is
-- the last one that no longer counts. at and rem are the last instant and its sum; ext = {index that
-- becomes element 0, its sum, index of the first instant of the future or nil,
-- whether the key exists, index from which on the entries that follow stand in
-- for the list's own or nil, those entries}.

-- @functions
function entry(at, sum)
  return pack('>I6I3', floor(at / 32), at % 32 * 524288 + sum)
end

function opened(text)
  local high, low = unpack('>I6I3', text)
  local sum = low % 524288
  return high * 32 + (low - sum) / 524288, sum
end

-- search returns the first index of a log, from low on, whose instant is later
-- than past, or whose sum is at least leave above base; it looks in strides that
-- double.
function search(key, low, past, base, leave)
  local function found(i)
    local text = call('LINDEX', key, i)
    if not text or #text ~= 9 then
      return true
    end
    local at, sum = opened(text)
    if past then
      return at > past
    end
    return (sum - base) % 524288 >= leave
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

-- @age
local period = q
local last = redis.pcall('LINDEX', key, -1)
ext = {0, 0, nil, last}
if last and (last.err or #last ~= 9) then
  foreign = foreign + 1
elseif last then
  at, rem = opened(last)
  clamped = at > now
  if clamped then
    ext[3] = search(key, 1, now, 0, 0)
    at = now
  end
  if at > now - period then
    local live = min(search(key, 1, now - period, 0, 0), ext[3] or 1e9)
    local _, base = opened(call('LINDEX', key, live - 1))
    ext[1], ext[2] = live - 1, base
    used = (rem - base) % 524288
  end
end

-- @wait
local leave, found = used + cost - burst, now
if leave <= aged then
  local i = search(key, ext[1] + 1, nil, ext[2], leave)
  if not ext[3] or i < ext[3] then
    found = (opened(call('LINDEX', key, i)))
  end
end
wait = found + q - now

-- @fresh
if used > aged then
  fresh = q
elseif used > 0 then
  fresh = at + q - now
end

-- @delay

-- @back
if not ext[6] and ext[3] then
  ext[5], ext[6] = ext[3], {entry(now, rem)}
end
if newest and used > 0 then
  -- Negative: from the end.
  local i, tail = 0, {}
  if ext[6] then
    i = max(ext[1] + 1, ext[5] - 999)
    tail = call('LRANGE', key, i, ext[5] - 1)
    tail[#tail + 1] = ext[6][1]
  else
    for _, text in ipairs(call('LRANGE', key, -1000, -1)) do
      local _, sum = opened(text)
      if (sum - ext[2] - 1) % 524288 < used then
        tail[#tail + 1] = text
      end
    end
    i = -#tail
  end
  local left, sum = min(units, used), rem
  while #tail > 0 and left > 0 do
    local _, before = opened(tail[#tail - 1] or call('LINDEX', key, i - 1))
    local own = (sum - before) % 524288
    if left < own then
      tail[#tail] = entry(opened(tail[#tail]), (sum - left) % 524288)
      own = left
    else
      tail[#tail] = nil
    end
    left, sum, back = left - own, (sum - own) % 524288, back + own
  end
  at = (opened(tail[#tail] or call('LINDEX', key, i - 1)))
  ext[5], ext[6] = i, tail
  used, rem = used - back, sum
elseif not newest then
  local i, tail = search(key, ext[1] + 1, since - 1, 0, 0), ext[6] or {}
  if not ext[6] or i < ext[5] then
    tail = call('LRANGE', key, i, min(i + 1000, (ext[5] or 1e9) - 1))
    for j = 1, ext[6] and #ext[6] or 0 do
      tail[#tail + 1] = ext[6][j]
    end
  elseif i > ext[5] then
    i = ext[5]
  end
  local first = 1
  while tail[first] and opened(tail[first]) < since do
    first = first + 1
  end
  local instant, sum, before = 0, 0, 0
  if tail[first] then
    instant, sum = opened(tail[first])
  end
  if instant == since and since > now - q and used > 0 and #tail - first < 1000 then
    local _
    _, before = opened(first > 1 and tail[first - 1] or call('LINDEX', key, i - 1))
    back = min(units, (sum - before) % 524288)
    local kept, last = {}, before
    for j = 1, #tail do
      local total
      instant, total = opened(tail[j])
      if j < first then
        kept[j] = tail[j]
      elseif (total - back) % 524288 ~= last then
        last = (total - back) % 524288
        kept[#kept + 1] = entry(instant, last)
      end
    end
    at = (opened(kept[#kept] or call('LINDEX', key, i - 1)))
    ext[5], ext[6] = i, kept
    used, rem = used - back, last
  end
end

-- @save
local added = used - aged
if aged == 0 or used == 0 then
  if ext[4] then
    call('DEL', key)
  end
  if used > 0 then
    call('RPUSH', key, entry(0, 0), entry(now, added))
  end
else
  if ext[6] then
    call('LTRIM', key, ext[1], ext[5] - 1)
    if #ext[6] > 0 then
      call('RPUSH', key, spread(ext[6]))
    end
  else
    if ext[3] then
      call('LTRIM', key, 0, ext[3] - 1)
      call('RPUSH', key, entry(now, rem))
    end
    if ext[1] > 0 then
      call('LTRIM', key, ext[1], -1)
    end
  end
  if added > 0 then
    local last = entry(now, (rem + added) % 524288)
    if at == now then
      call('LSET', key, -1, last)
    else
      call('RPUSH', key, last)
    end
  end
end
if used > 0 then
  call('PEXPIRE', key, life)
end
