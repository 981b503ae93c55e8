-- What gcra, fixed_window and token_bucket keep: two numbers or three, packed in
-- 12 to 18 bytes. The length says the layout; any other is not ours.

-- @load
local bytes = value and #value or 0
if bytes == 12 then
  at, used = unpack('>I7I5', value)
elseif bytes == 16 then
  at, used, rem = unpack('>I7I5I4', value)
elseif bytes == 14 then
  at, used = unpack('>I7I7', value)
elseif bytes == 18 then
  at, used, rem = unpack('>I7I7I4', value)
elseif value then
  foreign = foreign + 1
end

-- @save
local layout = used < 1099511627776 and '>I7I5' or '>I7I7'
if rem > 0 then
  value = pack(layout .. 'I4', at, used, rem)
else
  value = pack(layout, at, used)
end
