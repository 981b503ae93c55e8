-- Asks Weir whether a request may pass, and stores the answer in variables of the
-- transaction: txn.weir_status, weir_body, weir_retry_after, weir_ratelimit, weir_policy.

-- The URL is the same for each request. Never put anything into it that a client sends.
local question = "http://127.0.0.1:8080/v1/auth?domain=web&from=remote_address=client_ip"

-- With --http-token-file: {"Bearer ..."}
local authorization = nil

-- Timeout in milliseconds. HAProxy tries up to four times, so a request waits for at most
-- one second and then passes.
local patience = 250

local function first(headers, name)
    return headers and headers[name] and headers[name][0]
end

core.register_action("weir", { "http-req" }, function(txn)
    local answer = core.httpclient():get {
        url = question,
        -- Count by the address of the peer. Behind another proxy, use the header that
        -- this proxy sets, and trust no other.
        headers = { ["X-Forwarded-For"] = { txn.sf:src() }, ["Authorization"] = authorization },
        timeout = patience,
    }
    -- 2xx passes and 429 refuses. Any other status means that Weir or its store is down.
    if not answer or (answer.status ~= 429 and (answer.status < 200 or answer.status > 299)) then
        return
    end
    txn:set_var("txn.weir_status", answer.status)
    -- Without the line break at its end, which HAProxy would write as %0A.
    txn:set_var("txn.weir_body", (answer.body:gsub("%s+$", "")))
    for variable, name in pairs({ weir_retry_after = "retry-after", weir_ratelimit = "ratelimit", weir_policy = "ratelimit-policy" }) do
        local value = first(answer.headers, name)
        if value then
            txn:set_var("txn." .. variable, value)
        end
    end
end, 0)
