-- Looks up the id of an act in its record.
-- Uses kind, n, record, content, elsewhere and head (the list of the act's charges, and its
-- hash). Sets head to that of the record, if there is one, code (an error of the id, or 0),
-- answered (the decisions, if the act was decided before), known (the record as it is;
-- nil without one), size (of the record's decisions and what precedes them), tail (size,
-- with the charges that may follow) and amended (a caller has amended the take).
local code, known, answered = 0, record > 0 and EXT[record], nil
local size, tail, amended = 16 + 36 * n, 16 + 36 * n, nil
local layout = head and string.sub(head, -8)
if known then
  local list = 10 + unpack('>I2', known)
  head, known = string.sub(known, 1, list), string.sub(known, list + 1)
  local status, content_was = unpack('>Bc8', known)
  amended = status > 8
  if status % 8 > 4 then
    tail = size + 21 * n
  end
  -- The kind of the act that has settled, refunded or released the take.
  local closed = #known > tail and string.byte(known, tail + 1)
  if (kind == TAKE or kind == AMEND) and content_was ~= content then
    code = REUSED
  elseif string.sub(head, -8) ~= layout then
    code = MOVED
  elseif kind == TAKE or kind == AMEND then
    if kind == TAKE and closed == RELEASE then
      code = RELEASED
    elseif kind == TAKE or closed or amended and elsewhere then
      -- Nothing amends a take that is closed, and the store's own amendments yield to a
      -- caller's.
      answered = string.sub(known, 10, size)
    end
  elseif status % 4 ~= 1 then
    code = UNKNOWN
  elseif closed == kind and string.sub(known, tail + 2, tail + 9) == content then
    answered = string.sub(known, tail + 10)
  elseif closed then
    code = closed == RELEASE and RELEASED or SETTLED
  end
elseif record > 0 and kind ~= TAKE and kind ~= AMEND then
  code = UNKNOWN
end
