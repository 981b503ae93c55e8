-- Decides all acts. head.lua has the formats; the sections are files of their own, each
-- with what it uses and sets. All reads come first, and all writes last.
local KEYS, request, foreign = KEYS, ARGV[1], 0
-- @section read

local reply, answers, outside = {0}, 0, false
do -- names that extensions do not see
  local TAKE, REFUND, SETTLE, RELEASE, RENEW, RESET, RECORD, AMEND, WITHDRAW = 0, 1, 2, 3, 4, 5, 6, 7, 8
  local UNKNOWN_ID, REUSED, SETTLED, RELEASED, OVER_REFUND, BUSY, OUTSIDE, LOST, POSSIBLE = 1, 2, 3, 4, 5, 6, 7, 9, 10
  -- The states of a record; the bytes of its attempts at most; how long an early end lives and
  -- an attempt may be on its way, in ms; and the attempt that cannot be withdrawn.
  local NONE, TOMBSTONE, DENIED, OPEN, CLOSED, MOST, EARLY, LATE, NOBODY = 0, 1, 2, 3, 4, 8 * 32, 10000, 60000, '\0\0\0\0\0\0\0\0'
  local DECISION = '>BI7I7I7I7I7'
  -- Set by the section functions.
  local byte, char, sub, concat, instant, decided
  local KEY, COST, BLOCK, SUM, REFUSED, DELAY, HELD, SINCE, LATER, UNTOUCHED, MISSING, TOLD, pending
  local waits, queued, blocked, blocked_for, holds, occupy, give, force, put
  local charges, find, parse, unparse, tombstone, pick, merge, leaves, note, left
  -- Of the act at hand, as these functions see it.
  local anonymous, holder

  for _ = 1, acts do
    local kind, n, flags
    kind, n, flags, pos = unpack('>BBB', request, pos)
    answers = answers + 1
    if flags == 4 then
      local k
      k, pos = unpack('>I2', request, pos)
      local key, rule, at, used, rem, aged, ext = KEYS[k], RULE[k], AT[k], USED[k], REM[k], AGED[k], EXT[k]
      local id, flags, burst, debt, p, q, x, y = rule[1], rule[2], rule[3], rule[5], rule[6], rule[7], rule[8], rule[9]
      -- @section run
      outside = outside or flags % 8 >= 4 and (now < p or now >= x)
      if outside then
        reply[answers] = pack('>BI7', OUTSIDE, now)
      else
        USED[k] = used
        reply[answers] = pack('>BI7I7I7I7I7', 0, now, granted, first, was, second)
      end
    else
      if not KEY then
        -- @section functions
      end

      -- The act, as the request has it; its charges are KEY[i] and COST[i].
      local immediate, elsewhere, dry = flags % 4 >= 2, flags % 16 >= 8, flags >= 128
      local record, life, refused_life, longest, lease, content, attempt, lines = 0, 0, 0, 0, 0, nil, nil, nil
      anonymous, holder = flags % 64 >= 32, nil
      if flags % 2 == 1 then
        record, life, refused_life, longest, lease, content, holder, attempt, pos = unpack('>I2I7I7I7I7c8c16c8', request, pos)
      end
      local blocks = kind >= 128
      kind, BLOCK = kind % 128, nil
      local top, first, most, WAIVED = answers, pos, 0, nil
      for i = 1, n do
        KEY[i], COST[i], most, pos = unpack('>I2I7I7', request, pos)
        if KEY[i] >= 32768 then
          KEY[i], WAIVED = KEY[i] - 32768, WAIVED or {}
          WAIVED[i] = true
        end
        if kind == REFUND then
          pos = pos + 14
        elseif kind == AMEND then
          pos = pos + 22
        end
        local rule = RULE[KEY[i]]
        outside = outside or rule[2] % 8 >= 4 and (now < rule[6] or now >= rule[8])
      end
      if record > 0 then
        lines, pos = sub(request, pos, pos + 8 * n - 1), pos + 8 * n
      end
      local KEEP, GROUP, ALT, SKIP
      if flags % 32 >= 16 then
        KEEP = {unpack('>' .. string.rep('i7', n), request, pos)}
        pos = KEEP[n + 1]
      end
      if flags % 128 >= 64 then
        GROUP, ALT, SKIP = {byte(request, pos, pos + n - 1)}, {byte(request, pos + n, pos + 2 * n - 1)}, {}
        pos = pos + 2 * n
      end
      local blocked_units
      if blocks then
        BLOCK, blocked_units = {}, {}
        for i = 1, n do
          BLOCK[i], blocked_units[i], pos = unpack('>I2I7', request, pos)
        end
      end

      -- @section record
      if code == 0 and not answered then
        if kind == TAKE then
          -- @section take
        else
          -- @section change
        end
      end
      if answered then
        reply[top] = (r.told and '\8' or '\0') .. answered
      else
        reply[top] = code == 0 and decided or pack('>BI7', code, now)
      end
    end
  end
end

-- @before
-- @section write
-- @after
return pack('>I2', foreign) .. table.concat(reply)
