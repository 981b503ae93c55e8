-- An extension of the script finds these names beside the script's own:
--
-- XKEYS   its keys, which follow those of the acts in KEYS
-- XARGV   its arguments, which follow ARGV[1 + rules + 1], the number of keys of
--         the acts, in decimal
--
-- now, foreign, reply and answers are the script's: the time, the number of keys
-- that held something foreign, and the reply to the acts, reply[1] … reply[answers].
-- The extension's reply follows that: its section after leaves it in
-- reply[answers + 1], and a section before that ends the call returns everything,
-- the number of foreign keys (I2) first. KEYS, RULE, AT, USED, REM, AGED, EXT and
-- DIRTY must not be changed.
local all, KEYS, XKEYS, XARGV = KEYS, {}, {}, {}
do
  local head = 2 + unpack('>I2', ARGV[1])
  local own = tonumber(ARGV[head])
  for k = 1, #all do
    if k <= own then
      KEYS[k] = all[k]
    else
      XKEYS[k - own] = all[k]
    end
  end
  for i = head + 1, #ARGV do
    XARGV[i - head] = ARGV[i]
  end
end
