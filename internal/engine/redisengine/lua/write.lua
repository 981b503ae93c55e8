-- Writes the keys that have changed, each once.
local lived, lives -- the life of a record in ms, and as text
for k = 1, #KEYS do
  local key, rule, at, used, rem, aged, ext, dirty = KEYS[k], RULE[k], AT[k], USED[k], REM[k], AGED[k], EXT[k], DIRTY[k]
  if dirty == 'reset' then
    call('DEL', key)
  elseif not rule then
    if dirty then
      if used ~= lived then
        lived, lives = used, string.format('%.0f', used)
      end
      call('SET', key, ext, 'PX', lives)
    end
  elseif dirty or used ~= aged then
    local id, flags, burst, p, q, x, y, life, value, patches = rule[1], rule[2], rule[3], rule[6], rule[7], rule[8], rule[9], rule[10], nil, nil
    if used > burst then
      local fresh = 0
      -- @fresh
      life = lifetime(fresh)
    end
    local refundable = REFUNDABLE[k]
    -- @save
    -- @section put
  end
end
