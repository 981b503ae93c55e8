-- Looks up the id of an act in its record, and does what needs no key of a limit.
-- Uses kind, n, record, content, attempt, lines and elsewhere. Sets code (an error of the id, or
-- 0), answered (the decisions, if the act is answered from the record), r (the record, as a
-- table; nil without an id), place (which line of the record each line of the act is; nil: they
-- are the same) and taken (r knows the take that the act is about or repeats).
--
-- Units of a take are held while one of its attempts stands, or while it is firm: a caller knows
-- the answer for certain. An attempt whose caller was told an error is withdrawn. A tombstone
-- stands for a take that is not known: it says which attempts were withdrawn before they
-- arrived, and how the take was ended before this store knew it. Only an amendment obeys such an
-- early end.
local code, answered, r, place, taken = outside and OUTSIDE or 0, nil, nil, nil, false
if record > 0 and not outside then
  if EXT[record] then
    r = parse(EXT[record])
    if not r then
      foreign = foreign + 1
    elseif r.early and unpack('>I7', r.early) <= now then
      r.early = nil
    end
  end
  r = r or {state = NONE, firm = false, told = false, standing = '', withdrawn = '', lines = ''}
  if r.state == TOMBSTONE and not r.early and r.withdrawn == '' then
    r.state = NONE
  end
  taken = r.state > TOMBSTONE
  if taken and r.lines ~= lines then
    place = {}
    for i = 1, n do
      place[i] = find(r.lines, sub(lines, 8 * i - 7, 8 * i)) or false
    end
  end

  if taken and (kind == TAKE or kind == AMEND) and r.content ~= content then
    code = REUSED
  elseif kind == TAKE and attempt ~= NOBODY and find(r.withdrawn, attempt) then
    code = RELEASED
  elseif place and r.state == DENIED and (kind == TAKE or kind == AMEND) then
    -- Other limits may grant it.
    taken, place, r.lines, r.held = false, nil, '', nil
  elseif kind == TAKE and taken then
    if r.state == CLOSED and r.closed_by == RELEASE then
      code = RELEASED
    elseif r.state == CLOSED or r.firm or find(r.standing, attempt) then
      answered = pick(r.at, r.decisions, place, n)
    elseif attempt ~= NOBODY and #r.standing >= MOST then
      code = BUSY
    else
      r.firm = attempt == NOBODY
      r.standing = r.firm and '' or r.standing .. attempt
      note(record, r, left(record))
      answered = pick(r.at, r.decisions, place, n)
    end
  elseif kind == WITHDRAW and r.state ~= CLOSED then
    local i = find(r.standing, attempt)
    if i then
      r.standing = sub(r.standing, 1, 8 * i - 8) .. sub(r.standing, 8 * i + 1)
    end
    if not find(r.withdrawn, attempt) then
      r.withdrawn = sub(r.withdrawn .. attempt, -MOST)
    end
    if not taken then
      note(record, tombstone(r), r.state == TOMBSTONE and max(refused_life, left(record)) or refused_life)
      answered = instant .. string.rep('\0', 36 * n)
    elseif r.firm or r.standing ~= '' then
      note(record, r, left(record))
      answered = instant .. string.rep('\0', 36 * n)
    end
  elseif kind == WITHDRAW then
    answered = instant .. string.rep('\0', 36 * n)
  elseif kind == AMEND and (r.state == CLOSED or taken and r.told and elsewhere) then
    -- Nothing amends a take that is closed, and the store's own amendments yield to a caller's.
    answered = pick(r.at, r.decisions, place, n)
  elseif kind == RENEW and (not taken or r.state == DENIED) then
    code = UNKNOWN_ID
  elseif kind ~= TAKE and kind ~= AMEND and r.state < OPEN then
    code = UNKNOWN_ID
    if not r.early and not dry then
      local life = r.state == NONE and EARLY or max(EARLY, left(record))
      r.early = pack('>I7Bc8', now + EARLY * 1000, kind, content)
      for i = 1, n do
        r.early = r.early .. sub(lines, 8 * i - 7, 8 * i) .. pack('>I7', COST[i])
      end
      note(record, taken and r or tombstone(r), life)
    end
  elseif kind ~= TAKE and r.state == CLOSED then
    if r.closed_by == kind and r.closed_as == content then
      answered = pick(r.closed_at, r.closing, place, n)
    else
      code = r.closed_by == RELEASE and RELEASED or SETTLED
    end
  end
end
