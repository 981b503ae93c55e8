-- One command to Redis and its reply, over a connection of nginx's own pool.
local M = {}

-- command spells a command in Redis's protocol.
local function command(args)
  local parts = {'*' .. #args .. '\r\n'}
  for _, arg in ipairs(args) do
    arg = tostring(arg)
    parts[#parts + 1] = '$' .. #arg .. '\r\n' .. arg .. '\r\n'
  end
  return table.concat(parts)
end

-- reply reads a reply that is one string. An error of Redis comes third, after
-- which the connection is as good as before.
local function reply(sock)
  local line, err = sock:receive('*l')
  if not line then
    return nil, err
  end
  local kind, rest = line:sub(1, 1), line:sub(2)
  if kind == '-' then
    return nil, nil, rest
  end
  local size = kind == '$' and tonumber(rest)
  if not size or size < 0 then
    return nil, 'redis answered ' .. line
  end
  local text
  text, err = sock:receive(size + 2)
  return text and text:sub(1, size), err
end

-- ask sends a command and returns the reply, or nil, what went wrong between the
-- two, and what Redis itself says against the command.
function M.ask(redis, args)
  local sock = ngx.socket.tcp()
  sock:settimeouts(redis.connect_ms, redis.send_ms, redis.read_ms)
  local ok, err = sock:connect(redis.address)
  if not ok then
    return nil, err
  end
  ok, err = sock:send(command(args))
  if not ok then
    sock:close()
    return nil, err
  end
  local text, broken, refused = reply(sock)
  if broken then
    sock:close()
  else
    sock:setkeepalive(redis.idle_ms, redis.pool)
  end
  return text, broken, refused
end

return M
