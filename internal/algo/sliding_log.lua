-- sliding_log: see sliding_log.go. q = period. A LIST of instants, each with the
-- sum of all grants up to it modulo 2^24; element 0 is the last one that no
-- longer counts. at and rem are the last instant and its sum; ext = {index that
-- becomes element 0, its sum, index of the first instant of the future or nil,
-- whether the key exists}.

-- @age
local period = q
local last = redis.pcall('LINDEX', key, -1)
ext = {0, 0, nil, last}
if last and (last.err or #last ~= 10) then
  foreign = foreign + 1
elseif last then
  at, rem = unpack('>I7I3', last)
  clamped = at > now
  if clamped then
    ext[3] = search(key, 1, now, 0, 0)
    at = now
  end
  if at > now - period then
    local live = min(search(key, 1, now - period, 0, 0), ext[3] or 1e9)
    local _, base = unpack('>I7I3', call('LINDEX', key, live - 1))
    ext[1], ext[2] = live - 1, base
    used = (rem - base) % 16777216
  end
end

-- @wait
local leave, found = used + cost - burst, now
if leave <= aged then
  local i = search(key, ext[1] + 1, nil, ext[2], leave)
  if not ext[3] or i < ext[3] then
    found = (unpack('>I7', call('LINDEX', key, i)))
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
local live = ext[1] + 1
local i = search(key, live, since - 1, 0, 0)
local tail = call('LRANGE', key, i, i + 1000)
local first, sum
if #tail > 0 and #tail <= 1000 then
  first, sum = unpack('>I7I3', tail[1])
end
if first == since and since > now - q and used > 0 then
  local _, before = unpack('>I7I3', call('LINDEX', key, i - 1))
  back = min(units, (sum - before) % 16777216)
  local kept, last = {}, before
  for j = 1, #tail do
    local instant, total = unpack('>I7I3', tail[j])
    total = (total - back) % 16777216
    if total ~= last then
      -- What lies in the future is of now, all in one.
      local n = #kept + 1
      if instant > now and n > 1 and at == now then
        n = n - 1
      end
      at, last = min(instant, now), total
      kept[n] = pack('>I7I3', at, total)
    end
  end
  if #kept == 0 then
    at = (unpack('>I7', call('LINDEX', key, i - 1)))
  end
  ext[5], ext[6] = i, kept
  used, rem = used - back, last
end

-- @save
local added = used - aged
if aged == 0 or used == 0 then
  if ext[4] then
    call('DEL', key)
  end
  if used > 0 then
    call('RPUSH', key, pack('>I7I3', 0, 0), pack('>I7I3', now, added))
  end
elseif ext[5] then
  call('LTRIM', key, ext[1], ext[5] - 1)
  if #ext[6] > 0 then
    call('RPUSH', key, spread(ext[6]))
  end
else
  if ext[3] then
    call('LTRIM', key, 0, ext[3] - 1)
    call('RPUSH', key, pack('>I7I3', now, rem))
  end
  if ext[1] > 0 then
    call('LTRIM', key, ext[1], -1)
  end
  local entry = pack('>I7I3', now, (rem + added) % 16777216)
  if at == now then
    call('LSET', key, -1, entry)
  else
    call('RPUSH', key, entry)
  end
end
if used > 0 then
  call('PEXPIRE', key, ttl(rule, used, fresh))
end
