-- Writes a key: its value, or patches, which are offsets in its string and what is written there,
-- the last first. life is its time to live; with patches, false leaves that as it is.
if value then
  call('SET', key, value, 'PX', life)
elseif patches then
  for i = #patches - 1, 1, -2 do
    call('SETRANGE', key, patches[i], patches[i + 1])
  end
  if life then
    call('PEXPIRE', key, life)
  end
end
