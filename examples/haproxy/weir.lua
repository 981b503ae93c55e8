-- Asks Weir whether a request may pass, and leaves the answer in variables of the
-- transaction: txn.weir_status, weir_body, weir_retry_after, weir_ratelimit, weir_policy.

-- The question is the same for each request: nothing of a client's stands in it.
local question = "http://127.0.0.1:8080/v1/auth?domain=web&from=remote_address=client_ip"

-- With --http-token-file: {"Bearer ..."}
local authorization = nil

-- The most milliseconds that HAProxy waits for an answer. It asks a silent Weir up to
-- four times, so a request waits for a second before it goes on without.
local patience = 250

local function first(headers, name)
    return headers and headers[name] and headers[name][0]
end

core.register_action("weir", { "http-req" }, function(txn)
    local answer = core.httpclient():get {
        url = question,
        -- The client's address is the peer's. Behind another proxy, take it from a
        -- header that this proxy sets, and only from there.
        headers = { ["X-Forwarded-For"] = { txn.sf:src() }, ["Authorization"] = authorization },
        timeout = patience,
    }
    -- 2xx passes, 429 refuses. Everything else is no answer: Weir is down or has no store.
    if not answer or (answer.status ~= 429 and (answer.status < 200 or answer.status > 299)) then
        return
    end
    txn:set_var("txn.weir_status", answer.status)
    txn:set_var("txn.weir_body", answer.body)
    for variable, name in pairs({ weir_retry_after = "retry-after", weir_ratelimit = "ratelimit", weir_policy = "ratelimit-policy" }) do
        local value = first(answer.headers, name)
        if value then
            txn:set_var("txn." .. variable, value)
        end
    end
end, 0)
