-- token_bucket: see token_bucket.go. p, q = count, period.

-- @age
-- @include low_water load
-- @include words load
local count, period = p, q
clamped = at > now
if clamped then
  at = now
end
used = min(used, cap)
local refills = min(floor((now - at) / period), -floor(-used / count))
used = used - refills * count
at = at + refills * period
if used <= 0 then
  at, used = now, 0
end

-- @wait
wait = at - floor(-(used + cost - burst) / p) * q - now

-- @fresh
if used > 0 then
  fresh = at - floor(-used / p) * q - now
end

-- @delay

-- @back
local count, period = p, q
local due = since + delay
if due <= now or used > burst and at - floor(-(used - burst) / count) * period <= due then
  local refills = 0
  if at > due then
    refills = floor((at - due - 1) / period) + 1
  end
  local den, level = 1, used
  -- @include low_water least
  local gone = max(0, min(used, max(min(units, least), units - refills * count)))
  -- @include low_water refund
  back, used = gone, used - gone
end

-- @save
local den, level = 1, aged
-- @include low_water save
-- @include words save
value = ext and value .. ext or value
