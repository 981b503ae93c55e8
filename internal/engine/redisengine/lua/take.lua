-- Decides a take: all of its charges are granted, or none is; with alternatives, one of each
-- group.
-- Uses n, KEY, COST, BLOCK (nil: no limit has blocks), KEEP (nil: nothing has to stay free; -1: the charge is made even if it
-- does not fit), GROUP, ALT and SKIP (nil: there are no alternatives) and most (the least that any charge may be granted in part; 0: all or
-- nothing), WAIVED (nil: no charge is), immediate, longest, elsewhere, dry (nothing is charged), holder and the act's record. Changes USED, EXT
-- and DIRTY, and appends the decisions to reply.
--
-- A refusal in one charge refuses the act; a charge of a key that an earlier one charges
-- too needs room for both (pending). SUM, REFUSED and DELAY are what each charge found.
local fits, charged = not elsewhere, nil
if GROUP then
  -- @section choose
else
  for i = 1, n do
    -- @section fit
    fits = fits and not refused
  end
end
if fits and most > 0 then
  for i = 1, n do
    local k = KEY[i]
    local keep = KEEP and KEEP[i] or 0
    most = (SKIP and SKIP[i] or keep < 0) and most or min(most, floor((RULE[k][3] - USED[k] - keep) / (SUM[i] / COST[i])))
  end
end

-- Begin the blocks of the keys whose limits have refused the take. A charge that keeps units
-- free is no reason: others may still use them.
for i = 1, BLOCK and not fits and not dry and n or 0 do
  local k, b = KEY[i], BLOCK[i]
  if b > 0 and REFUSED[i] and USED[b] == 0 and not (KEEP and KEEP[i] > 0) and not (SKIP and SKIP[i]) then
    local rule, used, cost, keep, outcome, wait = RULE[k], USED[k], SUM[i], 0, 0, 0
    local id, burst, p, q, x = rule[1], rule[3], rule[6], rule[7], rule[8]
    -- @section retry
    if outcome == 2 then
      USED[b] = RULE[b][3]
    end
  end
end

-- Charge what is granted, or the refusals under limits that charge them.
for i = 1, n do
  local k, cost = KEY[i], COST[i]
  if SKIP and SKIP[i] or dry then
    cost = 0
  elseif fits then
    if most > 0 then
      cost = most
      COST[i] = most
      if RULE[k][1] == LEAKY then
        -- The act's charges before this one were granted more than their cost.
        DELAY[i] = queued(k, 0)
      end
    end
    REFUNDABLE[k] = REFUNDABLE[k] or record > 0 and cost > 0
    if anonymous and RULE[k][1] == CONCURRENCY and cost > 0 then
      occupy(k, holder, cost)
      cost = 0
    elseif RULE[k][1] == CONCURRENCY and cost > 0 then
      if holds(k, holder) then
        cost = 0
      end
      EXT[k][holder], DIRTY[k] = now + RULE[k][7], true
    end
    if KEEP and KEEP[i] < 0 and USED[k] + cost > RULE[k][5] then
      cost = max(0, RULE[k][5] - USED[k])
      charged = charged or {}
      charged[i] = cost
    end
    USED[k] = USED[k] + cost
  elseif anonymous and RULE[k][1] == CONCURRENCY then
    REM[k], DIRTY[k] = min(REM[k] + COST[i], 1000000000), true
  elseif REFUSED[i] and RULE[k][2] % 2 == 1 then
    local was = USED[k]
    USED[k] = max(was, min(was + cost, RULE[k][5]))
    charged = charged or {}
    charged[i] = USED[k] - was
    REFUNDABLE[k] = REFUNDABLE[k] or record > 0 and charged[i] > 0
  end
  pending[k] = 0
end

-- Answer, of a charge that is made even if it does not fit with no less room than the one
-- before: outcome 0 not evaluated, 1 granted, 2 refused, 3 not charged, 4 refused for ever, 6 refused by a block,
-- 7 granted nothing of a blocked key.
local before = 0
for i = 1, n do
  local k, cost, outcome, granted, wait, fresh, delay = KEY[i], SUM[i], 3, 0, 0, 0, 0
  local key, rule, at, used, rem, aged, ext = KEYS[k], RULE[k], AT[k], USED[k], REM[k], AGED[k], EXT[k]
  local id, flags, burst, p, q, x, y = rule[1], rule[2], rule[3], rule[6], rule[7], rule[8], rule[9]
  local keep = KEEP and max(0, KEEP[i]) or 0
  if fits then
    outcome, granted, delay = blocked(i) and 7 or 1, dry and 0 or COST[i], DELAY[i]
  elseif REFUSED[i] then
    -- @section retry
  end
  -- @fresh
  local room = max(0, burst - used - keep)
  if immediate and id == LEAKY and used > 0 then
    room = 0
  end
  if KEEP and KEEP[i] < 0 then
    room = max(room, before)
  end
  if blocked(i) then
    room, fresh = 0, max(fresh, blocked_for(i))
  end
  before = room
  answers = answers + 1
  if SKIP and SKIP[i] then
    outcome, granted, wait, fresh, delay = 0, 0, 0, 0, 0
  elseif WAIVED and WAIVED[i] then
    outcome, granted, wait, fresh, delay = 5, 0, 0, 0, 0
  end
  reply[answers] = pack(DECISION, outcome, granted, room, wait, fresh, delay)
  if fits and charged then
    charged[i] = charged[i] or granted
  end
end

-- Remember the decisions.
if record > 0 and (fits or refused_life > 0 and r.state ~= TOMBSTONE) then
  note(record, {
    state = fits and OPEN or DENIED, firm = attempt == NOBODY, standing = attempt == NOBODY and '' or attempt, withdrawn = r.withdrawn,
    early = r.early, lines = lines, content = content, at = instant, decisions = n == 1 and reply[answers] or concat(reply, '', top + 1, answers),
    held = charged and charges(charged, {}, fits and DELAY or {}, n),
  }, fits and life or refused_life)
end
