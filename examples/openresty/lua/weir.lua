-- Asks Weir's own script in Redis whether a request fits its limits, in the words
-- that the script's head documents. What differs from limit to limit and from
-- version to version comes from "weir script"; here is only what one question
-- takes: one act, all its limits under one key, everything or nothing, at once.
local cjson = require 'cjson.safe'
local resp = require 'resp'
local siphash = require 'siphash'
local bit = require 'bit'
local char, byte, floor = string.char, string.byte, math.floor

local TAKE, IMMEDIATE = 0, 2
local GRANTED, REFUSED, REFUSED_FOR_EVER = 1, 2, 4
local LETTERS = 'ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_'
local MAX_KEY = 200 -- longer ones are stored as digests, which this does not do

-- Numbers travel with their highest byte first.
local function pack(bytes, n)
  local text = ''
  for _ = 1, bytes do
    text = char(n % 256) .. text
    n = floor(n / 256)
  end
  return text
end

local function unpack_at(text, pos, bytes)
  local n = 0
  for i = pos, pos + bytes - 1 do
    n = n * 256 + byte(text, i)
  end
  return n, pos + bytes
end

local function number64(hex)
  return bit.lshift(tonumber(hex:sub(1, 8), 16) + 0ULL, 32) + tonumber(hex:sub(9), 16)
end

local function from_hex(hex)
  return (hex:gsub('..', function(digits) return char(tonumber(digits, 16)) end))
end

local function read(path)
  local file = assert(io.open(path, 'rb'))
  local text = assert(file:read('*a'))
  file:close()
  return text
end

local Weir = {}
Weir.__index = Weir

-- new reads what "weir script" printed. redis says where the store is and how
-- long to wait for it, see resp.lua.
function Weir.new(script, recipe, redis)
  local self = setmetatable(assert(cjson.decode(read(recipe))), Weir)
  self.script, self.redis = read(script), redis
  self.k0, self.k1 = number64(self.hash_key[1]), number64(self.hash_key[2])
  for _, limit in ipairs(self.limits) do
    limit.rule = from_hex(limit.rule)
  end
  return self
end

-- names are the Redis keys of a key's budgets. With several limits each has a key
-- of its own, all in the slot of the key.
function Weir:names(key)
  local hash, tag = siphash(self.k0, self.k1, key), ''
  for _ = 1, 4 do
    local letter = tonumber(hash % 64) + 1
    tag, hash = tag .. LETTERS:sub(letter, letter), hash / 64
  end
  local names = {}
  for i, limit in ipairs(self.limits) do
    local own = key
    if #self.limits > 1 or limit.name ~= '' then
      own = key .. '#' .. (limit.name ~= '' and limit.name or i - 1)
    end
    assert(#own <= MAX_KEY, 'the key is too long')
    names[i] = self.prefix .. '{' .. tag .. '}' .. limit.kind .. ':' .. own
  end
  return names
end

-- request packs the question.
function Weir:request(cost)
  local n, rules, keys, charges = #self.limits, '', '', ''
  for i, limit in ipairs(self.limits) do
    rules = rules .. limit.rule
    keys = keys .. pack(2, i)
    charges = charges .. pack(2, i) .. pack(7, cost) .. pack(7, 0)
  end
  return pack(2, n) .. pack(2, 1) .. rules .. keys .. char(TAKE, n, IMMEDIATE) .. charges
end

-- decisions unpacks the answer, one decision a limit; durations in microseconds.
function Weir:decisions(reply)
  local code, pos = unpack_at(reply, 3, 1)
  if code ~= 0 then
    return nil, 'the script answers ' .. code
  end
  local all = {}
  pos = pos + 7
  for i, limit in ipairs(self.limits) do
    local d = {limit = limit}
    d.outcome, pos = unpack_at(reply, pos, 1)
    d.granted, pos = unpack_at(reply, pos, 7)
    d.remaining, pos = unpack_at(reply, pos, 7)
    d.retry_after, pos = unpack_at(reply, pos, 7)
    d.reset_after, pos = unpack_at(reply, pos, 7)
    d.delay, pos = unpack_at(reply, pos, 7)
    d.refused = d.outcome == REFUSED or d.outcome == REFUSED_FOR_EVER
    d.never = d.outcome == REFUSED_FOR_EVER
    all[i] = d
  end
  return all
end

-- stricter reports whether a speaks rather than b: a refusal that lasts longer,
-- or the limit with less of it left.
local function stricter(a, b)
  if a.refused or b.refused then
    local wait = a.never and math.huge or a.retry_after
    return a.refused and (not b.refused or wait > (b.never and math.huge or b.retry_after))
  end
  return a.remaining * b.limit.count < b.remaining * a.limit.count
end

-- take charges the key and returns whether it may go on, and the decision of the
-- strictest limit; or nil and why there is no decision. The script runs at most
-- once: where Redis does not know it, nothing has run.
function Weir:take(key, cost)
  local names = self:names(key)
  local args = {'EVALSHA', self.sha, #names}
  for _, name in ipairs(names) do
    args[#args + 1] = name
  end
  args[#args + 1] = self:request(cost)
  for _, limit in ipairs(self.limits) do
    args[#args + 1] = limit.ttl
  end
  local reply, err, refused = resp.ask(self.redis, args)
  if refused and refused:find('^NOSCRIPT') then
    args[1], args[2] = 'EVAL', self.script
    reply, err, refused = resp.ask(self.redis, args)
  end
  if not reply then
    return nil, err or refused
  end
  local all
  all, err = self:decisions(reply)
  if not all then
    return nil, err
  end
  local speaker = all[1]
  local allowed = true
  for _, d in ipairs(all) do
    allowed = allowed and d.outcome == GRANTED
    if stricter(d, speaker) then
      speaker = d
    end
  end
  return allowed, speaker
end

return Weir
