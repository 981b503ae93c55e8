"""Calls weir models with the SDKs of OpenAI and of Anthropic, as programs do: python sdks.py PART URL[,URL] -- PART URL …"""

import asyncio
import json
import sys
import time

import anthropic
import openai

# Of the part that runs.
url, calls = "", 0


def count(_request):
    global calls
    calls += 1


async def count_async(request):
    count(request)


http = openai.DefaultHttpxClient(event_hooks={"request": [count]})


def openai_at(key):
    return openai.OpenAI(api_key=key, base_url=url + "/v1", http_client=http)


def anthropic_at(key):
    return anthropic.Anthropic(api_key=key, base_url=url, http_client=http)


def say(*texts):
    return [{"role": "user", "content": text} for text in texts]


messages = say("hello")


def equal(got, want):
    assert got == want, f"{got!r}, want {want!r}"


def refused(call, kind, status, tries, check):
    """Wants an error of a class after so many tries."""
    global calls
    calls = 0
    try:
        call()
    except kind as error:
        equal(error.status_code, status)
        check(error)
        equal(calls, tries)
        return
    raise AssertionError("granted")


def code(want, **more):
    def check(error):
        equal(error.code, want)
        for name, value in more.items():
            equal(getattr(error, name), value)
    return check


def run_calls():
    one, other = openai_at("one"), anthropic_at("one")
    chat = {"model": "mock-10", "max_completion_tokens": 20, "messages": messages}
    equal(one.chat.completions.create(**chat).usage.completion_tokens, 10)
    for asks in False, True:
        options = {"stream_options": {"include_usage": True}} if asks else {}
        text, usage = "", None
        for chunk in one.chat.completions.create(**chat, stream=True, **options):
            assert asks or chunk.choices, "a chunk of usage that nobody asked for"
            text += chunk.choices[0].delta.content or "" if chunk.choices else ""
            usage = chunk.usage or usage
        equal((text.count("word"), usage is not None), (10, asks))
    equal(one.responses.create(model="mock-10", max_output_tokens=20, input="hello").usage.output_tokens, 10)
    equal(other.messages.create(model="mock-10", max_tokens=20, messages=messages).usage.output_tokens, 10)
    with other.messages.stream(model="mock-10", max_tokens=20, messages=messages) as stream:
        whole = stream.get_final_message()
    equal((whole.usage.output_tokens, whole.content[0].text.count("word")), (10, 10))
    assert other.messages.count_tokens(model="mock", messages=messages).input_tokens > 0
    # What is left, with the credential of each SDK. The second one may have to wait for a second.
    for client, path in (one, "/me"), (other, "/v1/me"):
        limits = {limit["name"]: limit for limit in client.get(path, cast_to=object)["limits"]}
        equal(limits["requests"]["remaining"], limits["requests"]["limit"] - 7)


def run_refusals():
    long, longer = say("hello " * 250), say("hello " * 1000)
    one, three = openai_at("one"), anthropic_at("three")
    one.chat.completions.create(model="mock-90", max_completion_tokens=90, messages=messages)
    refused(
        lambda: one.with_options(max_retries=0).chat.completions.create(model="mock-50", max_completion_tokens=50, messages=messages),
        openai.RateLimitError, 429, 1, code("rate_limit_exceeded", type="tokens"),
    )
    three.messages.create(model="mock-90", max_tokens=90, messages=messages)
    refused(
        lambda: three.with_options(max_retries=0).messages.create(model="mock-50", max_tokens=50, messages=messages),
        anthropic.RateLimitError, 429, 1, lambda e: equal(e.body["error"]["type"], "rate_limit_error"),
    )
    # Nothing below is tried again, although the SDK would.
    two, four = openai_at("two"), openai_at("four")
    refused(lambda: two.chat.completions.create(model="mock", messages=longer), openai.APIStatusError, 413, 1, code("request_too_large"))
    refused(lambda: two.chat.completions.create(model="other", messages=messages), openai.BadRequestError, 400, 1, code("unknown_model"))
    four.chat.completions.create(model="mock-1", max_completion_tokens=1, messages=long)
    refused(
        lambda: four.chat.completions.create(model="mock-1", max_completion_tokens=1, messages=long),
        openai.RateLimitError, 429, 1, code("insufficient_quota", type="insufficient_quota"),
    )
    refused(
        lambda: anthropic_at("four").messages.create(model="mock-1", max_tokens=1, messages=long),
        anthropic.RateLimitError, 429, 1, lambda e: equal(e.body["error"]["details"]["error_code"], "enforced_spend_limit_reached"),
    )


def run_waits():
    global calls
    # A short wait is waited for.
    for quick in (
        lambda: openai_at("five").chat.completions.create(model="mock-quick", max_completion_tokens=1, messages=messages),
        lambda: anthropic_at("six").messages.create(model="mock-quick", max_tokens=1, messages=messages),
    ):
        calls, begun = 0, time.monotonic()
        quick()
        quick()
        equal(calls, 3)
        assert time.monotonic() - begun > 2
    # A slot that stays taken is tried for twice more.
    stream = openai_at("seven").chat.completions.create(model="mock-100000", max_completion_tokens=100_000, messages=messages, stream=True)
    next(iter(stream))
    refused(
        lambda: openai_at("eight").chat.completions.create(model="mock-100000", max_completion_tokens=1, messages=messages),
        openai.RateLimitError, 429, 3, code("rate_limit_exceeded", type="requests"),
    )
    refused(
        lambda: anthropic_at("nine").messages.create(model="mock-100000", max_tokens=1, messages=messages),
        anthropic.RateLimitError, 429, 3, lambda e: equal(e.body["error"]["type"], "rate_limit_error"),
    )
    stream.close()


def run_overload():
    """Each try of an SDK is a request."""
    equal(openai_at("one").chat.completions.create(model="any", max_completion_tokens=20, messages=messages).usage.total_tokens, 12)
    equal(anthropic_at("one").messages.create(model="any", max_tokens=20, messages=messages).usage.output_tokens, 5)
    equal(calls, 6)


def run_cut():
    """A stream that ends with the server is an error."""
    one = openai_at("one")
    streams = [
        iter(one.chat.completions.create(model="mock-100000", messages=messages, stream=True)),
        iter(one.responses.create(model="mock-100000", input="hello", stream=True)),
        iter(anthropic_at("one").messages.create(model="mock-100000", max_tokens=100_000, messages=messages, stream=True)),
    ]
    for stream in streams:
        next(stream)
    print("open", flush=True)
    for stream in streams:
        try:
            for event in stream:
                if getattr(event, "type", None) == "error":
                    raise openai.APIError(event.message, None, body=None)
        except (openai.APIError, anthropic.APIError) as error:
            assert "the server stops" in str(error), error
        else:
            raise AssertionError("a stream ended well")


async def together(urls, n, how, content):
    """Calls n times, each time as another caller, and prints how it went: with both SDKs in turn, or with OpenAI's all at once (chat) or one by one (alone)."""
    shared = openai.DefaultAsyncHttpxClient(event_hooks={"request": [count_async]}, limits=openai.DEFAULT_CONNECTION_LIMITS)

    async def call(i):
        at = urls[i // 2 % len(urls)]
        try:
            if how != "both" or i % 2:
                client = openai.AsyncOpenAI(api_key=f"caller-{i}", base_url=at + "/v1", http_client=shared)
                await client.chat.completions.create(model="m", messages=say(content))
            else:
                other = anthropic.AsyncAnthropic(api_key=f"caller-{i}", base_url=at, http_client=shared)
                await other.messages.create(model="m", max_tokens=1000, messages=say(content))
        except (openai.RateLimitError, anthropic.RateLimitError) as error:
            return getattr(error, "code", None) or error.body["error"]["type"]
        return "served"

    outcomes = [await call(i) for i in range(n)] if how == "alone" else await asyncio.gather(*(call(i) for i in range(n)))
    print(json.dumps({"calls": calls} | {outcome: outcomes.count(outcome) for outcome in outcomes}))


def run_together(urls, n, how, words):
    asyncio.run(together(urls.split(","), int(n), how, "hello " * int(words)))


for job in " ".join(sys.argv[1:]).split(" -- "):
    part, url, *rest = job.split()
    calls = 0
    globals()["run_" + part](*([url, *rest] if rest else []))
