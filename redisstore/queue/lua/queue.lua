-- A queue under a limit, in the script that decides the limit. The acts are one:
-- a charge, or a peek if nothing is to be charged.
--
-- XKEYS[1]  the queue, a list (oldest first) or a stream
-- XKEYS[2]  leases: a ZSET of the ids of items in flight by the ends of their
--           leases
-- XKEYS[3]  leased: a HASH from the id of an item in flight to how often it has
--           been delivered (I4) and, for a list, the item. For a stream the empty
--           field holds the id of the newest entry that was ever leased
-- XKEYS[4]  the record of a push, if it has an id
-- XARGV[1]  packed big-endian: operation (0 push, 1 pop, 2 ack, 3 extend,
--           4 length), whether the queue is a stream, whether the limit has
--           a count of 0, choice at the limit (0 refuse, 1 drop oldest,
--           2 trim), longest (0: any length), length to trim to, most items to
--           drop, lease, deliveries so far               B B B B I7 I7 I2 I7 I4
-- XARGV[2]  push: the item; pop: an id for an item of a list; else: the id
-- XARGV[3]  the field of a stream's entries that holds the item
-- XARGV[4]  fingerprint of the push, 16 bytes, if it has an id
-- XARGV[5]  how long the record lives, in ms, decimal
--
-- Reply: status (0 done, 1 refused by the limit, 2 refused because the queue is
-- full, 3 nothing to pop, 4 the queue's key holds another type, 5 the id belongs
-- to another push, 6 another consumer has the lease, 7 the item was deleted), items
-- waiting, items in flight, deliveries, end of the lease, strings that follow,
-- each with its length                                B I7 I7 I4 I7 I4, I4 c0 …
-- The strings are the items dropped by a push; the id and the item popped.
--
-- A record: the fingerprint, then the whole first reply but for its first number.
local QUEUE, LEASES, LEASED, RECORD = XKEYS[1], XKEYS[2], XKEYS[3], XKEYS[4]
local OP = {push = 0, pop = 1, ack = 2, extend = 3, length = 4}
local STATUS = {done = 0, refused = 1, full = 2, empty = 3, type = 4, reused = 5, lost = 6, deleted = 7}
local CHOICE = {refuse = 0, drop = 1, trim = 2}

-- @before
if string.byte(reply[1]) > 0 then
  return pack('>I2', foreign) .. reply[1]
end
local op, stream, denied, choice, longest, trimmed, most, lease, attempt = unpack('>BBBBI7I7I2I7I4', XARGV[1])
local id, item, field, fingerprint, record_life = XARGV[2], XARGV[2], XARGV[3], XARGV[4], XARGV[5]
stream = stream == 1
local granted = denied == 0 and string.byte(reply[2]) == 1
local waiting, in_flight, till, drop, fresh_item = 0, 0, 0, 0, false
local dropped, dropped_ids, orphans = {}, {}, {}

local function exact(number)
  return string.format('%.0f', number)
end

-- answer returns what the queue adds to the reply.
local function answer(status, strings)
  local text = {pack('>BI7I7I4I7I4', status, waiting, in_flight, attempt, till, #strings)}
  for i = 1, #strings do
    text[i + 1] = pack('>I4', #strings[i]) .. strings[i]
  end
  return table.concat(text)
end

-- whole returns the reply of a call that changes nothing more.
local function whole(status)
  return reply[1] .. reply[2] .. answer(status, {})
end

local function holds(key, kind)
  local found = call('TYPE', key).ok
  return found == kind or found == 'none'
end

local function body(entry)
  for i = 1, #entry[2], 2 do
    if entry[2][i] == field then
      return entry[2][i + 1]
    end
  end
  return ''
end

-- oldest returns up to n waiting items from the old end, and a stream's ids.
local function oldest(n)
  if n == 0 or not stream then
    return n > 0 and call('LRANGE', QUEUE, 0, n - 1) or {}, {}
  end
  local found = call('XREAD', 'COUNT', n, 'STREAMS', QUEUE, call('HGET', LEASED, '') or '0-0')
  local items, ids = {}, {}
  for i, entry in ipairs(found and found[1][2] or {}) do
    items[i], ids[i] = body(entry), entry[1]
  end
  return items, ids
end

if op == OP.push and RECORD then
  local known = redis.pcall('GET', RECORD)
  if known and (known.err or #known < 61) then
    foreign = foreign + 1
  elseif known and string.sub(known, 1, 16) ~= fingerprint then
    return pack('>I2', foreign) .. whole(STATUS.reused)
  elseif known then
    return pack('>I2', foreign) .. string.sub(known, 17)
  end
end
-- Ack and Extend do not touch a list.
if (stream or op ~= OP.ack and op ~= OP.extend) and not holds(QUEUE, stream and 'stream' or 'list') then
  return pack('>I2', foreign) .. whole(STATUS.type)
end
for key, kind in pairs({[LEASES] = 'zset', [LEASED] = 'hash'}) do
  if not holds(key, kind) then
    foreign = foreign + 1
    call('DEL', key)
  end
end
in_flight = call('ZCARD', LEASES)
if stream then
  waiting = max(0, call('XLEN', QUEUE) - in_flight)
elseif op ~= OP.ack and op ~= OP.extend then
  waiting = call('LLEN', QUEUE)
end

local status = STATUS.done
if op == OP.push then
  local full = longest > 0 and waiting >= longest
  if full and choice == CHOICE.refuse then
    if RECORD then
      call('SET', RECORD, fingerprint .. whole(STATUS.full), 'PX', record_life)
    end
    return pack('>I2', foreign) .. whole(STATUS.full)
  end
  if (full or not granted) and choice == CHOICE.trim then
    drop = max(0, waiting + 1 - trimmed)
  elseif full or not granted and choice == CHOICE.drop then
    drop = full and waiting - longest + 1 or 1
  end
  dropped, dropped_ids = oldest(min(drop, most, waiting))
  drop = #dropped
  if not granted and choice ~= CHOICE.trim and drop == 0 then
    status = STATUS.refused
  -- A command that may fail is called first.
  elseif stream then
    call('XADD', QUEUE, '*', field, item)
  else
    call('RPUSH', QUEUE, item)
  end
elseif op == OP.pop then
  -- Items whose leases have ended come before new ones. Those that others have deleted
  -- are cleared away, a bounded number at a time.
  local ended, found = call('ZRANGEBYSCORE', LEASES, '-inf', exact(now), 'LIMIT', 0, 1), nil
  while ended[#orphans + 1] and not found do
    local candidate, entry = ended[#orphans + 1], nil
    local held = call('HGET', LEASED, candidate)
    if held and #held >= 4 then
      attempt = unpack('>I4', held) + 1
      entry = not stream and string.sub(held, 5)
    else
      attempt = 2
    end
    if stream then
      entry = redis.pcall('XRANGE', QUEUE, candidate, candidate)[1]
      entry = entry and body(entry)
    end
    if entry then
      found, id, item = candidate, candidate, entry
    else
      orphans[#orphans + 1] = candidate
    end
    if #orphans == 1 and #ended == 1 then
      ended = call('ZRANGEBYSCORE', LEASES, '-inf', exact(now), 'LIMIT', 0, most)
    end
  end
  if not found then
    local items, ids = oldest(1)
    item, id, attempt, fresh_item = items[1], ids[1] or id, 1, true
  end
  if not item then
    for i = 1, #orphans do
      call('ZREM', LEASES, orphans[i])
      call('HDEL', LEASED, orphans[i])
    end
    in_flight = in_flight - #orphans
    if in_flight == 0 then
      call('DEL', LEASED)
    end
    return pack('>I2', foreign) .. whole(STATUS.empty)
  end
  if not granted then
    status = STATUS.refused
  else
    till = now + lease
    -- A command that frees memory or takes none: after it a full Redis accepts the rest
    -- of the script, so that the queue can drain.
    call('PERSIST', LEASES)
  end
elseif op == OP.ack or op == OP.extend then
  local held = call('HGET', LEASED, id)
  if not call('ZSCORE', LEASES, id) then
    status = STATUS.deleted
  elseif held and #held >= 4 and unpack('>I4', held) ~= attempt then
    status = STATUS.lost
  else
    till = now + lease
  end
end

-- @after
local strings = dropped
if status ~= STATUS.done then
  strings = {}
elseif op == OP.push then
  if stream and drop > 0 then
    call('XDEL', QUEUE, spread(dropped_ids))
  elseif drop > 0 then
    call('LTRIM', QUEUE, drop, -1)
  end
  waiting = waiting + 1 - drop
elseif op == OP.pop then
  strings = {id, item}
  if fresh_item then
    waiting, in_flight = waiting - 1, in_flight + 1
    if not stream then
      call('LPOP', QUEUE)
    else
      call('HSET', LEASED, '', id)
    end
  end
  call('HSET', LEASED, id, pack('>I4', attempt) .. (stream and '' or item))
  call('ZADD', LEASES, exact(till), id)
  for i = 1, #orphans do
    call('ZREM', LEASES, orphans[i])
    call('HDEL', LEASED, orphans[i])
    in_flight = in_flight - 1
  end
elseif op == OP.extend then
  call('ZADD', LEASES, exact(till), id)
elseif op == OP.ack then
  call('HDEL', LEASED, id)
  call('ZREM', LEASES, id)
  in_flight = in_flight - 1
  if stream then
    call('XDEL', QUEUE, id)
  end
  if in_flight == 0 then
    call('DEL', LEASED)
  end
end
answers = answers + 1
reply[answers] = answer(status, strings)
if op == OP.push and RECORD then
  call('SET', RECORD, fingerprint .. table.concat(reply), 'PX', record_life)
end
