-- The gateway: one question for each request, before it is passed on.
local Weir = require 'weir'

local M = {}
local weir

-- setup is for init_by_lua: what it loads, all workers share.
function M.setup()
  local here = ngx.config.prefix()
  weir = Weir.new(here .. 'script.lua', here .. 'recipe.json', {
    address = 'unix:' .. here .. 'redis.sock',
    -- The most that a request waits for Redis, and then goes on without.
    connect_ms = 250, send_ms = 250, read_ms = 250,
    idle_ms = 60000, pool = 64,
  })
end

-- client is the address that nginx sees: an IPv4 address by itself, an IPv6
-- address by its /64, within which the rest is the client's to choose. Behind
-- another proxy let ngx_http_realip_module find the client's first.
local function client()
  local binary = ngx.var.binary_remote_addr
  if #binary < 16 then
    return ngx.var.remote_addr
  end
  return (binary:sub(1, 8):gsub('.', function(c) return string.format('%02x', c:byte()) end)) .. '/64'
end

local function seconds(micros) return math.ceil(micros / 1e6) end

-- tell puts what the strictest limit said into headers.
local function tell(d)
  ngx.header['X-RateLimit-Limit'] = d.limit.count
  ngx.header['X-RateLimit-Remaining'] = d.remaining
  ngx.header['X-RateLimit-Reset'] = seconds(d.reset_after)
  if d.refused and not d.never then
    ngx.header['Retry-After'] = math.max(1, seconds(d.retry_after))
  end
end

-- access is for access_by_lua. Without a decision the request passes.
function M.access()
  local allowed, d = weir:take('gateway:' .. client(), 1)
  if allowed == nil then
    ngx.log(ngx.WARN, 'weir: no decision: ', d)
    return
  end
  tell(d)
  if not allowed then
    ngx.status = ngx.HTTP_TOO_MANY_REQUESTS
    ngx.header['Content-Type'] = 'application/problem+json'
    ngx.header['Cache-Control'] = 'no-store'
    ngx.say('{"type":"https://iana.org/assignments/http-problem-types#quota-exceeded","title":"Quota exceeded","status":429}')
    return ngx.exit(ngx.HTTP_OK)
  end
end

return M
