-- What an extension of the script finds beside what the script itself says:
--
-- XKEYS   its keys, which follow those of the acts in KEYS
-- XARGV   its arguments, which follow ARGV[1 + rules + 1], the number of keys of
--         the acts, in decimal
--
-- Its reply follows that to the acts: what its section after leaves in
-- reply[answers + 1].
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
