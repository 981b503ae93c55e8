-- SipHash-2-4 of a string, as an unsigned number of 64 bits, for LuaJIT.
-- https://www.aumasson.jp/siphash/siphash.pdf
local bit = require 'bit'
local bxor, bor, rol, lshift = bit.bxor, bit.bor, bit.rol, bit.lshift
local byte = string.byte

local function rounds(n, v0, v1, v2, v3)
  for _ = 1, n do
    v0, v2 = v0 + v1, v2 + v3
    v1, v3 = bxor(rol(v1, 13), v0), bxor(rol(v3, 16), v2)
    v0 = rol(v0, 32)
    v2, v0 = v2 + v1, v0 + v3
    v1, v3 = bxor(rol(v1, 17), v2), bxor(rol(v3, 21), v0)
    v2 = rol(v2, 32)
  end
  return v0, v1, v2, v3
end

-- word reads up to eight bytes, the lowest first.
local function word(text, from, to)
  local n = 0ULL
  for i = to, from, -1 do
    n = bor(lshift(n, 8), byte(text, i) + 0ULL)
  end
  return n
end

return function(k0, k1, text)
  local v0, v1 = bxor(k0, 0x736f6d6570736575ULL), bxor(k1, 0x646f72616e646f6dULL)
  local v2, v3 = bxor(k0, 0x6c7967656e657261ULL), bxor(k1, 0x7465646279746573ULL)
  local whole = #text - #text % 8
  for i = 1, whole, 8 do
    local m = word(text, i, i + 7)
    v0, v1, v2, v3 = rounds(2, v0, v1, v2, bxor(v3, m))
    v0 = bxor(v0, m)
  end
  local m = bor(word(text, whole + 1, #text), lshift(#text % 256 + 0ULL, 56))
  v0, v1, v2, v3 = rounds(2, v0, v1, v2, bxor(v3, m))
  v0, v1, v2, v3 = rounds(4, bxor(v0, m), v1, bxor(v2, 0xffULL), v3)
  return bxor(bxor(v0, v1), bxor(v2, v3))
end
