-- Looks up the id of an act in its record.
-- Uses kind, n, record, content, elsewhere and head (the list of the act's charges, and its
-- hash). Sets head to that of the record, if there is one, code (an error of the id, or 0),
-- answered (the decisions, if the act was decided before), known (the record as it is;
-- nil without one), size (of the record's decisions and what precedes them), tail (size,
-- with the charges that may follow) and amended (a caller has amended the take).
local code, known, answered = 0, record > 0 and EXT[record], nil
local size, tail, amended = 16 + 36 * n, 16 + 36 * n, nil
local layout = head and string.sub(head, -8)
-- Each take of an id is an asking with a number. What an asking was told an error for is
-- withdrawn; once none stands, the take holds nothing, unless it is firm. A mark is a record
-- without a take: of askings that were withdrawn before they came, and of how a take was ended
-- before it was known. A take that comes then is decided, and only its amendment heeds the end.
local firm, standing, withdrawn, mark, ended, nobody = false, '', '', false, nil, '\0\0\0\0\0\0\0\0'
local told_head = head
if known then
  local list = 10 + unpack('>I2', known)
  local s, w, costs = string.byte(known, list + 1, list + 3)
  firm, s = s == 255, s % 255
  local rest = list + 4 + 8 * (s + w)
  standing, withdrawn = string.sub(known, list + 4, list + 3 + 8 * s), string.sub(known, list + 4 + 8 * s, rest - 1)
  if costs > 0 then
    if unpack('>I7', known, rest) > now then
      ended = string.sub(known, rest, rest + 15 + 7 * costs)
    end
    rest = rest + 16 + 7 * costs
  end
  head, known = string.sub(known, 1, list), string.sub(known, rest)
  if string.byte(known) == 3 then
    mark, known, head = ended or withdrawn ~= '', nil, told_head
  end
end
if kind == WITHDRAW then
  local i = has(standing, asking)
  if i then
    standing = string.sub(standing, 1, i - 1) .. string.sub(standing, i + 8)
  end
  if not has(withdrawn, asking) then
    withdrawn = string.sub(withdrawn .. asking, -64)
  end
end
if known then
  local status, content_was = unpack('>Bc8', known)
  amended = status > 8
  if status % 8 > 4 then
    tail = size + 21 * n
  end
  -- The kind of the act that has settled, refunded or released the take.
  local closed = #known > tail and string.byte(known, tail + 1)
  if kind == WITHDRAW and string.sub(head, -8) == layout then
    if closed or firm or #standing > 0 then
      note(record, head .. askings(firm, standing, withdrawn, ended) .. known, left(record))
      answered = pack('>I7', now) .. string.rep(pack(DECISION, 0, 0, 0, 0, 0, 0), n)
    end
  elseif (kind == TAKE or kind == AMEND) and content_was ~= content then
    code = REUSED
  elseif string.sub(head, -8) ~= layout then
    code = MOVED
  elseif kind == TAKE or kind == AMEND then
    if kind == TAKE and (closed == RELEASE or asking ~= nobody and has(withdrawn, asking)) then
      code = RELEASED
    elseif kind == TAKE or closed or amended and elsewhere then
      -- Nothing amends a take that is closed, and the store's own amendments yield to a
      -- caller's.
      answered = string.sub(known, 10, size)
      if kind == TAKE and not firm and not has(standing, asking) then
        if asking == nobody or #standing >= 64 then
          firm = true
        else
          standing = standing .. asking
        end
        note(record, head .. askings(firm, standing, withdrawn, ended) .. known, left(record))
      end
    end
  elseif status % 4 ~= 1 then
    code = UNKNOWN
    if kind ~= RENEW and not ended then
      ended = ending(kind, content, n)
      note(record, head .. askings(firm, standing, withdrawn, ended) .. known, max(10000, left(record)))
    end
  elseif closed == kind and string.sub(known, tail + 2, tail + 9) == content then
    answered = string.sub(known, tail + 10)
  elseif closed then
    code = closed == RELEASE and RELEASED or SETTLED
  end
elseif record > 0 and kind == WITHDRAW then
  note(record, head .. askings(false, '', withdrawn, ended) .. '\3', mark and max(refused_life, left(record)) or refused_life)
  answered = pack('>I7', now) .. string.rep(pack(DECISION, 0, 0, 0, 0, 0, 0), n)
elseif record > 0 and kind == TAKE and mark and asking ~= nobody and has(withdrawn, asking) then
  code = RELEASED
elseif record > 0 and kind ~= TAKE and kind ~= AMEND then
  code = UNKNOWN
  if kind ~= RENEW and not ended then
    ended = ending(kind, content, n)
    note(record, head .. askings(false, '', withdrawn, ended) .. '\3', mark and max(10000, left(record)) or 10000)
  end
end
