-- token_bucket: see token_bucket.go. p, q = count, period.

-- @age
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

-- @save
-- @include words save
