"""The adapters against a server: WEIR_URL names its RESP listener. A test is skipped where its framework is not installed,
or fails there if WEIR_FRAMEWORKS is set."""

import asyncio
import importlib.util
import logging
import os
import socket
import time
import unittest
import uuid

from weir import AsyncWeir, Weir

URL = os.environ.get("WEIR_URL", "")


def needs(name):
    missing = importlib.util.find_spec(name) is None and not os.environ.get("WEIR_FRAMEWORKS")
    return unittest.skipIf(missing or not URL, f"needs {name}, and a server at WEIR_URL")


def key():
    return "k:" + uuid.uuid4().hex


def nobody():
    """The URL of a port that nobody serves."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return f"weir://127.0.0.1:{listener.getsockname()[1]}"


class Case(unittest.TestCase):
    def setUp(self):
        logging.getLogger("weir").setLevel(logging.ERROR)


class Run:
    """Calls a storage or strategy for asyncio by the methods of the blocking one."""

    def __init__(self, target, loop):
        self.target, self.loop = target, loop

    def __getattr__(self, name):
        return lambda *args, **named: self.loop.run_until_complete(getattr(self.target, name)(*args, **named))


@needs("limits")
class TestLimits(Case):
    prefix = ""

    def strategy(self, kind, url=None, **options):
        import limits.storage
        import limits.strategies

        import weir.limits  # noqa: F401
        options.setdefault("timeout", 30)
        storage = limits.storage.storage_from_string(self.prefix + (url or URL), **options)
        self.addCleanup(storage.weir.close)
        return storage, getattr(limits.strategies, kind)(storage)

    def item(self, text):
        import limits
        return limits.parse(text)

    def test_each_strategy_counts(self):
        for kind in ("FixedWindowRateLimiter", "MovingWindowRateLimiter", "SlidingWindowCounterRateLimiter"):
            with self.subTest(kind):
                _, limiter = self.strategy(kind)
                item, k = self.item("5/hour"), key()
                stats = limiter.get_window_stats(item, k)
                self.assertEqual(stats.remaining, 5)
                self.assertTrue(limiter.hit(item, k, cost=3))
                self.assertEqual(limiter.get_window_stats(item, k).remaining, 2)
                self.assertTrue(limiter.test(item, k, cost=2))
                self.assertFalse(limiter.test(item, k, cost=3))
                self.assertFalse(limiter.hit(item, k, cost=3))
                self.assertTrue(limiter.hit(item, k, cost=2), "a refused hit is not charged")
                stats = limiter.get_window_stats(item, k)
                self.assertEqual(stats.remaining, 0)
                self.assertTrue(3000 < stats.reset_time - time.time() <= 3720, stats)
                self.assertFalse(limiter.hit(item, k))
                limiter.clear(item, k)
                self.assertTrue(limiter.hit(item, k, cost=5))

    def test_the_oldest_unit_frees_first(self):
        _, limiter = self.strategy("MovingWindowRateLimiter")
        item, k = self.item("3/hour"), key()
        limiter.hit(item, k)
        first = limiter.get_window_stats(item, k).reset_time
        limiter.hit(item, k)
        self.assertAlmostEqual(limiter.get_window_stats(item, k).reset_time, first, delta=2)

    def test_large_limits_and_long_keys(self):
        _, limiter = self.strategy("MovingWindowRateLimiter")
        item, k = self.item("1000000/hour"), key()
        self.assertTrue(limiter.hit(item, k + "x" * 5000, cost=999999))
        self.assertFalse(limiter.hit(item, k + "x" * 5000, cost=2))
        self.assertTrue(limiter.hit(item, k + "x" * 5001, cost=2))
        limiter.clear(item, k + "x" * 5000)
        self.assertTrue(limiter.hit(item, k + "x" * 5000, cost=1000000))

    def test_a_key_without_its_limit_is_a_mistake(self):
        storage, _ = self.strategy("FixedWindowRateLimiter")
        for call in (storage.get, storage.clear, storage.get_expiry, lambda k: storage.incr(k, 60)):
            with self.assertRaisesRegex(ValueError, "key is 'login': want one of RateLimitItem.key_for"):
                call("login")

    def test_a_prefix_is_not_cleared(self):
        with self.assertRaises(NotImplementedError):
            self.strategy("FixedWindowRateLimiter")[0].reset()

    def test_without_a_server(self):
        for kind in ("FixedWindowRateLimiter", "MovingWindowRateLimiter", "SlidingWindowCounterRateLimiter"):
            for outage, want in (("local", 5), ("open", 12), ("closed", 0)):
                with self.subTest(kind, outage=outage):
                    storage, limiter = self.strategy(kind, nobody(), outage=outage)
                    item, k = self.item("10/hour"), key()
                    granted = sum(limiter.hit(item, k) for _ in range(12))
                    self.assertEqual(granted, want)
                    self.assertEqual(limiter.test(item, k), outage == "open")
                    limiter.get_window_stats(item, k)
                    self.assertFalse(storage.check())

    def test_errors_are_wrapped_on_demand(self):
        import limits.errors

        from weir import Unavailable
        for wrap, want in ((False, Unavailable), (True, limits.errors.StorageError)):
            _, limiter = self.strategy("FixedWindowRateLimiter", nobody(), outage="raise", wrap_exceptions=wrap)
            with self.assertRaises(want):
                limiter.hit(self.item("1/hour"), key())


class TestAsyncLimits(TestLimits):
    prefix = "async+"

    def strategy(self, kind, url=None, **options):
        import limits.aio.strategies
        import limits.storage

        import weir.limits  # noqa: F401
        options.setdefault("timeout", 30)
        loop = asyncio.new_event_loop()
        self.addCleanup(loop.close)
        storage = limits.storage.storage_from_string(self.prefix + (url or URL), **options)
        self.addCleanup(lambda: loop.run_until_complete(storage.weir.close()))
        return Run(storage, loop), Run(getattr(limits.aio.strategies, kind)(storage), loop)


@needs("flask")
class TestFlask(Case):
    def app(self, weir, **options):
        import flask

        from weir.flask import limit
        self.addCleanup(weir.close)
        app = flask.Flask(__name__)

        @app.get("/<name>")
        @limit(weir, "2/h", "100/day", **options)
        def view(name):
            return name
        return app.test_client()

    def test_a_route(self):
        import flask
        k = key()
        client = self.app(Weir(URL, timeout=30), key=lambda: k + flask.request.view_args["name"])
        got = [client.get("/a") for _ in range(3)] + [client.get("/b")]
        self.assertEqual([r.status_code for r in got], [200, 200, 429, 200])
        self.assertEqual(got[0].headers["RateLimit-Policy"], '"default";q=2;w=3600')
        self.assertIn("Retry-After", got[2].headers)
        self.assertNotIn("Retry-After", got[0].headers)

    def test_without_a_server(self):
        client = self.app(Weir(nobody()), key=key())
        self.assertEqual([client.get("/a").status_code for _ in range(3)], [200, 429, 429])


@needs("fastapi")
class TestFastAPI(Case):
    def statuses(self, url, calls):
        import fastapi

        from weir.fastapi import Limit
        k, app = key(), fastapi.FastAPI()
        weir = AsyncWeir(url, timeout=30)

        async def whose(request):
            return k + request.path_params["name"]

        @app.get("/{name}", dependencies=[fastapi.Depends(Limit(weir, "2/h", "100/day", key=whose))])
        async def view(name: str):
            return name

        async def call(path):
            sent = []

            async def receive():
                return {"type": "http.request", "body": b"", "more_body": False}

            async def send(message):
                sent.append(message)
            await app({"type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": "GET", "scheme": "http", "path": path,
                       "raw_path": path.encode(), "query_string": b"", "headers": [], "client": ("127.0.0.1", 1), "server": ("t", 80)}, receive, send)
            return sent[0]["status"], {n.decode().lower(): v.decode() for n, v in sent[0]["headers"]}

        async def run():
            found = [await call(path) for path in calls]
            await weir.close()
            return found
        return asyncio.run(run())

    def test_a_route(self):
        got = self.statuses(URL, ["/a", "/a", "/a", "/b"])
        self.assertEqual([status for status, _ in got], [200, 200, 429, 200])
        self.assertEqual(got[0][1]["ratelimit-policy"], '"default";q=2;w=3600')
        self.assertIn("retry-after", got[2][1])

    def test_without_a_server(self):
        self.assertEqual([status for status, _ in self.statuses(nobody(), ["/a"] * 3)], [200, 429, 429])


@needs("httpx")
class TestHTTPX(Case):
    def client(self, answer, url=None, **options):
        import httpx

        from weir.httpx import LimitTransport
        self.sent, weir = [], Weir(url or URL, timeout=30)
        self.addCleanup(weir.close)

        def handle(request):
            self.sent.append(request.url.path)
            return answer(httpx)
        client = httpx.Client(transport=LimitTransport(self.limits, weir, transport=httpx.MockTransport(handle), **options))
        self.addCleanup(client.close)
        return client.get

    def setUp(self):
        super().setUp()
        self.key, self.text = key(), "2/h"

    def limits(self, request):
        return {self.key: self.text} if request.url.path != "/free" else None

    def test_a_later_turn_is_refused_before_the_call_leaves(self):
        import httpx

        from weir.httpx import RequestRefused
        get = self.client(lambda httpx: httpx.Response(200))
        get("http://api.test/1")
        get("http://api.test/2")
        with self.assertRaises(RequestRefused) as caught:
            get("http://api.test/3")
        self.assertIsInstance(caught.exception, httpx.TransportError)
        self.assertGreater(caught.exception.decision.retry_after, 60)
        get("http://api.test/free")
        self.assertEqual(self.sent, ["/1", "/2", "/free"])

    def test_a_turn_is_waited_for(self):
        self.text = "1/s"
        get = self.client(lambda httpx: httpx.Response(200))
        began = time.monotonic()
        for _ in range(3):
            get("http://api.test/")
        self.assertGreater(time.monotonic() - began, 1.9)

    def test_the_host_asked_for_a_pause(self):
        from weir.httpx import RequestRefused
        self.text = "100/h"
        for status, after, pauses in ((429, "3600", True), (503, "3600", True), (200, "3600", False), (429, "soon", False), (429, "9" * 30, False)):
            with self.subTest(status=status, after=after):
                get = self.client(lambda httpx: httpx.Response(status, headers={"Retry-After": after}))
                get("http://api.test/")
                get("http://other.test/")
                if pauses:
                    with self.assertRaises(RequestRefused):
                        get("http://api.test/")
                else:
                    get("http://api.test/")
                get("http://api.test/free")

    def test_without_a_server(self):
        from weir.httpx import RequestRefused
        get = self.client(lambda httpx: httpx.Response(200), nobody())
        get("http://api.test/")
        with self.assertRaises(RequestRefused):
            get("http://api.test/")


class TestAsyncHTTPX(TestHTTPX):
    def client(self, answer, url=None, **options):
        import httpx

        from weir.httpx import AsyncLimitTransport
        self.sent, weir = [], AsyncWeir(url or URL, timeout=30)

        async def handle(request):
            self.sent.append(request.url.path)
            return answer(httpx)
        client = httpx.AsyncClient(transport=AsyncLimitTransport(self.limits, weir, transport=httpx.MockTransport(handle), **options))
        loop = asyncio.new_event_loop()

        def close():
            loop.run_until_complete(client.aclose())
            loop.run_until_complete(weir.close())
            loop.close()
        self.addCleanup(close)
        return lambda url: loop.run_until_complete(client.get(url))


if __name__ == "__main__":
    unittest.main()
