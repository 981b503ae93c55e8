"""Both clients against a server: WEIR_URL names its RESP listener, in memory and empty. Without it, these tests are skipped."""

import asyncio
import logging
import os
import socket
import subprocess
import sys
import threading
import time
import unittest
import uuid

from weir import AsyncWeir, Forbidden, IDReused, NotCharged, Refused, Settled, Unavailable, UnknownID, Weir, WeirError

URL = os.environ.get("WEIR_URL", "")


class Faulty:
    """A server that answers with given replies, on each connection anew, the first of them to the greeting. Then it answers
    nothing, or closes after what it read."""

    def __init__(self, closes, *replies):
        self.closes, self.replies, self.commands = closes, replies or (b"+PONG",), 0
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"weir://127.0.0.1:{self.listener.getsockname()[1]}"
        self.connections = []
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        while True:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            self.connections.append(connection)
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection):
        replies = list(self.replies)
        while self._received(connection):
            if replies:
                connection.sendall(replies.pop(0) + b"\r\n")
                continue
            self.commands += 1
            if self.closes:
                connection.close()
                return

    @staticmethod
    def _received(connection):
        try:
            return connection.recv(65536)
        except OSError:
            return b""  # the test is over

    def close(self):
        self.listener.close()
        for connection in self.connections:
            connection.close()


class Blocking:
    """Runs the asyncio client by the same calls as the blocking one."""

    def __init__(self, url=None, **options):
        self.client = AsyncWeir(url, **options)
        self.loop = asyncio.new_event_loop()

    def __getattr__(self, name):
        method = getattr(self.client, name)

        def run(*args, **named):
            async def call():
                return await method(*args, **named)
            return self.loop.run_until_complete(call())
        return run

    def hold(self, *args, **named):
        return BlockingHold(self, self.client.hold(*args, **named)).begin()

    def stop(self):
        self.close()
        self.loop.close()


class BlockingHold:
    def __init__(self, client, hold):
        self.run, self.hold = client.loop.run_until_complete, hold

    def begin(self):
        self.run(self.hold.__aenter__())
        return self

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.run(self.hold.__aexit__(*error))

    def __getattr__(self, name):
        value = getattr(self.hold, name)
        return (lambda *args: self.run(value(*args))) if callable(value) else value


class Sync(Weir):
    stop = Weir.close


def key():
    return "k:" + uuid.uuid4().hex


class Common:
    kind = Sync

    def client(self, url=None, **options):
        options.setdefault("timeout", 30)
        c = self.kind(url or URL, **options)
        self.addCleanup(c.stop)
        return c

    def faulty(self, closes, *replies):
        server = Faulty(closes, *replies)
        self.addCleanup(server.close)
        return server

    def setUp(self):
        logging.getLogger("weir").setLevel(logging.ERROR)


class Served(Common):
    def setUp(self):
        super().setUp()
        if not URL:
            self.skipTest("WEIR_URL names no server")

    def test_limits_of_one_call_are_taken_together(self):
        weir, k = self.client(), key()
        for _ in range(200):
            weir.take(k, "1000/day", "10/day fixed_window")
        d = weir.peek(k, "1000/day")
        self.assertEqual(d.burst - d.remaining, 10)
        self.assertEqual(d.source, "store")

    def test_a_refusal_says_when(self):
        weir, k = self.client(), key()
        self.assertTrue(weir.take(k, "1/h"))
        d = weir.take(k, "1/h")
        self.assertFalse(d)
        self.assertTrue(3590 <= d.retry_after <= 3600, d)
        self.assertEqual(d.headers["Retry-After"], str(d.retry_after))
        self.assertEqual(d.headers["RateLimit-Policy"], '"default";q=1;w=3600')
        self.assertTrue(weir.take(k, "1/h", cost=2).never)
        self.assertEqual(weir.peek(k + "x", "5/h", cost=5).allowed, True)
        self.assertEqual(weir.peek(k, "1/h", cost=1).allowed, False)

    def test_costs_keys_and_amounts(self):
        weir, a, b = self.client(prefix="p:"), key(), key()
        d = weir.take([(a, "10/h", 3), (b, "20/h")], cost=2)
        self.assertEqual([s.remaining for s in d.limits], [7, 18])
        self.assertEqual(weir.take({a: "10/h", b: "20/h"}).limits[1].remaining, 17)
        self.assertEqual(weir.take(a, "10/h", up_to=100).granted, 6)
        self.assertEqual(weir.refund(a, "10/h", cost=4).remaining, 4)
        self.assertEqual(weir.record(a, "10/h", cost=3).remaining, 1)
        self.assertEqual(weir.reset(a, "10/h").remaining, 10)

    def test_a_take_with_an_id_happens_once(self):
        weir, k = self.client(), key()
        for _ in range(3):
            self.assertEqual(weir.take(k, "10/h", cost=4, id="job").remaining, 6)
        with self.assertRaises(IDReused):
            weir.take(k, "10/h", cost=5, id="job")
        with self.assertRaises(UnknownID):
            weir.refund(k, "10/h", id="other")

    def test_holds_are_settled_or_released(self):
        weir, k = self.client(), key()
        with weir.hold(k, "1000/day", cost=800) as h:
            h.settle(200)
        self.assertEqual(weir.peek(k, "1000/day").remaining, 800)
        with self.assertRaises(ZeroDivisionError), weir.hold(k, "1000/day", cost=800):
            1 / 0
        self.assertEqual(weir.peek(k, "1000/day").remaining, 800)
        with weir.hold(k, "1000/day", cost=300):
            pass
        self.assertEqual(weir.peek(k, "1000/day").remaining, 500)
        with self.assertRaises(Refused):
            weir.hold(k, "1000/day", cost=800)
        with self.assertRaises(Settled):
            h.settle(1)

    def test_holds_with_costs_of_their_own(self):
        weir, k = self.client(), key()
        charges = [(k, "1000/day", 100), (k, "50/h fixed_window", 5)]
        left = lambda: [weir.peek(k, limit).remaining for _, limit, _ in charges]
        weir.hold(charges).release()
        self.assertEqual(left(), [1000, 50])
        with weir.hold(charges):
            pass
        self.assertEqual(left(), [900, 45])
        weir.hold(charges).settle(2)
        self.assertEqual(left(), [898, 43])
        weir.hold(charges).settle([10, 1])
        self.assertEqual(left(), [888, 42])
        with self.assertRaisesRegex(WeirError, "want a number, or 2 of them"):
            weir.hold(charges).settle([1])
        weir.reset(charges)
        self.assertEqual(left(), [1000, 50])

    def test_slots(self):
        weir, k = self.client(), key()
        with weir.hold(k, "1/30s concurrency") as h:
            with self.assertRaises(Refused):
                weir.hold(k, "1/30s concurrency")
            h.renew()
        with weir.hold(k, "1/30s concurrency"):
            pass

    def test_wait(self):
        weir, k = self.client(), key()
        began = time.monotonic()
        for _ in range(3):
            weir.wait(k, "10/s burst 1", timeout=60)
        self.assertGreaterEqual(time.monotonic() - began, 0.199)
        weir.take(k, "1/h")
        with self.assertRaises(Refused):
            weir.wait(k, "1/h", timeout=5)

    def test_mistakes_are_named_and_charge_nothing(self):
        weir, k = self.client(), key()
        for limit, want in (
            ("10/fortnight", r'^limits\[1\]\.limit is "10/fortnight": want its period to be s, min, h'),
            ("9/h", r'^limits\[1\] is "9/h" for the same key and budget as "5/h": want a name of its own'),
        ):
            with self.assertRaisesRegex(WeirError, want):
                weir.take(k, "5/h", limit)
        with self.assertRaisesRegex(WeirError, "want a whole number"):
            weir.take(k, "5/h", cost=1.5)
        with self.assertRaisesRegex(WeirError, "want at least one"):
            weir.take(k)
        self.assertEqual(weir.peek(k, "5/h").remaining, 5)

    def test_check(self):
        self.client().check()

    @unittest.skipUnless(os.environ.get("WEIR_UNIX_URL"), "WEIR_UNIX_URL names no server")
    def test_a_unix_socket(self):
        weir, k = self.client(os.environ["WEIR_UNIX_URL"]), key()
        self.assertEqual([weir.take(k, "2/h").allowed for _ in range(3)], [True, True, False])
        self.assertEqual(weir.peek(k, "2/h").source, "store")


class Outages(Common):
    def gone(self):
        with socket.create_server(("127.0.0.1", 0)) as s:
            return f"weir://127.0.0.1:{s.getsockname()[1]}"

    def test_this_process_enforces_its_share(self):
        weir, k = self.client(self.gone()), key()
        granted = [weir.take(k, "20/h", "1000/h") for _ in range(30)]
        self.assertEqual(sum(map(bool, granted)), 10)
        self.assertEqual({d.source for d in granted}, {"client_local"})
        self.assertGreater(granted[-1].retry_after_ms, 0)
        with weir.hold(k, "2/30s concurrency") as h:
            with self.assertRaises(Refused):
                weir.hold(k, "2/30s concurrency")
            h.settle(1)
        with weir.hold(k, "2/30s concurrency"):
            pass

    def test_peeks_follow_the_policy(self):
        weir, k = self.client(self.gone()), key()
        weir.take(k, "20/h", cost=4)
        for cost, want in ((0, (True, 6, 0)), (6, (True, 6, 0)), (7, (False, 6, 0))):
            d = weir.peek(k, "20/h", cost=cost)
            self.assertEqual((d.allowed, d.remaining, d.granted), want)
            self.assertEqual(d.retry_after_ms > 0, cost == 7)
        self.assertEqual(weir.take(k, "20/h", up_to=6).source, "client_local")
        self.assertFalse(weir.peek(k, "2/30s concurrency", cost=2))
        self.assertTrue(self.client(self.gone(), outage="open").peek(k, "1/h", cost=9))
        self.assertFalse(self.client(self.gone(), outage="closed").peek(k, "1/h"))
        with self.assertRaises(Unavailable):
            self.client(self.gone(), outage="raise").peek(k, "1/h")

    def test_refusals_leave_nothing_behind(self):
        weir = self.client(self.gone())
        for _ in range(5):
            weir.take(key(), "2/30s concurrency", cost=2)
            weir.take(key(), "2/h", cost=2)
            weir.peek(key(), "2/30s concurrency")
        local = getattr(weir, "client", weir)._local
        self.assertEqual((local._holders, local._due), ({}, {}))

    def test_policies(self):
        gone, k = self.gone(), key()
        self.assertEqual(self.client(gone, outage="open").take(k, "1/h", cost=9).source, "client_open")
        self.assertFalse(self.client(gone, outage="closed").take(k, "1/h"))
        with self.assertRaises(Unavailable):
            self.client(gone, outage="raise").take(k, "1/h")
        with self.assertRaises(OSError):
            self.client(gone).check()

    def test_a_call_is_sent_twice_only_with_an_id(self):
        server = self.faulty(closes=True)
        self.assertEqual(self.client(server.url).take(key(), "9/h").source, "client_local")
        self.assertEqual(server.commands, 1)
        self.assertEqual(self.client(server.url).take(key(), "9/h", id="x").source, "client_local")
        self.assertEqual(server.commands, 3)

    def test_a_server_without_an_answer_is_left_alone_for_a_moment(self):
        server = self.faulty(closes=False)
        weir = self.client(server.url, timeout=0.05)
        for _ in range(3):
            self.assertEqual(weir.take(key(), "9/h").source, "client_local")
            getattr(weir, "client", weir)._retry_at += 60
        self.assertLessEqual(len(server.connections), 1)

    def test_a_full_server_is_an_outage_and_charges_nothing(self):
        server = self.faulty(True, b"-ERR max number of clients reached")
        self.assertEqual(self.client(server.url).take(key(), "9/h").source, "client_local")
        with self.assertRaisesRegex(NotCharged, "max number of clients"):
            self.client(server.url, outage="raise").take(key(), "9/h")
        self.assertEqual(server.commands, 0)

    def test_a_forbidden_command_leaves_others_to_the_server(self):
        server = self.faulty(True, b"+PONG", b"-NOPERM the caller may not reset", b"-UNKNOWNID no take")
        weir = self.client(server.url)
        with self.assertRaises(Forbidden):
            weir.reset(key(), "9/h")
        with self.assertRaises(UnknownID):
            weir.take(key(), "9/h")

    def test_another_service_is_an_outage(self):
        with socket.create_server(("127.0.0.1", 0)) as listener:
            def answer():
                connection, _ = listener.accept()
                with connection:
                    connection.recv(65536)
                    connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
            threading.Thread(target=answer, daemon=True).start()
            weir = self.client(f"weir://127.0.0.1:{listener.getsockname()[1]}", outage="raise")
            with self.assertRaisesRegex(Unavailable, "no reply of Weir"):
                weir.take(key(), "9/h")

    def test_arguments(self):
        for bad, options in (("redis://h", {}), ("weir+unix://", {}), ("weir+unix:///", {}), ("weir://h", {"outage": "maybe"}), ("weir://h", {"share": 0}), ("weir://h", {"timeout": 0})):
            with self.assertRaises(ValueError):
                self.kind(bad, **options)
        with self.assertRaises(ValueError) as caught:
            self.kind("http://me:secret@h")
        self.assertNotIn("secret", str(caught.exception))


class TestSync(Served, unittest.TestCase):
    def test_a_closed_idle_connection_is_noticed_before_the_write(self):
        weir, k = self.client(), key()
        weir.take(k, "9/h")
        weir._idle[0]._socket.shutdown(socket.SHUT_RDWR)
        self.assertEqual(weir.take(k, "9/h").source, "store")

    def test_threads(self):
        weir, k, granted = self.client(), key(), []
        threads = [threading.Thread(target=lambda: [granted.append(bool(weir.take(k, "50/day"))) for _ in range(20)]) for _ in range(8)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        self.assertEqual(sum(granted), 50)

    def test_decorated_functions(self):
        weir, k = self.client(), key()

        @weir.limit("2/h", key=lambda user: k + user)
        def greet(user):
            return "hello " + user
        self.assertEqual([greet("a"), greet("a"), greet("b")], ["hello a", "hello a", "hello b"])
        with self.assertRaises(Refused):
            greet("a")

    def test_a_forked_process_has_connections_of_its_own(self):
        weir, k = self.client(), key()
        weir.take(k, "10/h")
        pid = os.fork()
        if pid == 0:
            os._exit(0 if all(weir.take(k, "10/h").source == "store" for _ in range(3)) else 1)
        for _ in range(3):
            self.assertEqual(weir.take(k, "10/h").source, "store")
        self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), 0)
        self.assertEqual(weir.peek(k, "10/h").remaining, 3)


class TestAsync(Served, unittest.TestCase):
    kind = Blocking

    def test_many_tasks_share_a_connection(self):
        async def run():
            weir, k = AsyncWeir(URL, timeout=30), key()

            @weir.limit("10/day", key="d:" + k)
            async def work():
                return 1
            granted = await asyncio.gather(*(weir.take(k, "50/day") for _ in range(200)))
            worked = await asyncio.gather(*(work() for _ in range(20)), return_exceptions=True)
            held = await weir.hold(k + "h", "5/day", cost=5)
            await held.release()
            await weir.close()
            return sum(map(bool, granted)), worked.count(1), sum(isinstance(w, Refused) for w in worked)
        self.assertEqual(asyncio.run(run()), (50, 10, 10))

    def test_a_cancelled_call_leaves_the_others_their_replies(self):
        async def run():
            weir, k = AsyncWeir(URL, timeout=30), key()
            calls = [asyncio.ensure_future(weir.take(f"{k}{i}", f"{i + 1}/day", cost=0)) for i in range(20)]
            await asyncio.sleep(0)
            for call in calls[::2]:
                call.cancel()
            found = await asyncio.gather(*calls, return_exceptions=True)
            await weir.close()
            return [d.count for d in found[1::2]]
        self.assertEqual(asyncio.run(run()), list(range(2, 21, 2)))


PROCESS = """
import sys, time
ahead = float(sys.argv[2])
real, steady = time.time, time.monotonic
time.time, time.monotonic = (lambda: real() + ahead), (lambda: steady() + ahead)
from weir import Weir
weir = Weir(timeout=60)
print(sum(bool(weir.take(sys.argv[1], "400/day fixed_window")) for _ in range(100)))
"""


@unittest.skipUnless(URL, "WEIR_URL names no server")
class TestClocks(unittest.TestCase):
    def test_processes_whose_clocks_differ_grant_the_limit(self):
        k = key()
        processes = [subprocess.Popen([sys.executable, "-B", "-c", PROCESS, k, str(1.5 * (i % 2))], stdout=subprocess.PIPE, text=True) for i in range(6)]
        self.assertEqual(sum(int(p.communicate(timeout=120)[0]) for p in processes), 400)


class TestMiddleware(unittest.TestCase):
    def setUp(self):
        if not URL:
            self.skipTest("WEIR_URL names no server")

    def limits(self, k):
        return lambda request: {k: "2/h"} if request.get("limited") else None

    def test_wsgi(self):
        from weir.wsgi import LimitMiddleware
        weir = Weir(URL, timeout=30)
        self.addCleanup(weir.close)
        seen = []

        def app(environ, start):
            start("200 OK", [("A", "b")])
            return [b"hello"]
        limited = LimitMiddleware(app, self.limits(key()), weir)
        for environ in [{"limited": 1}] * 3 + [{}]:
            body = limited(environ, lambda status, headers: seen.append((status[:3], dict(headers))))
            seen.append(b"".join(body))
        self.assertEqual([s[0] for s in seen[::2]], ["200", "200", "429", "200"])
        self.assertEqual(seen[0][1]["A"], "b")
        self.assertEqual(seen[2][1]["RateLimit"], '"default";r=0;t=3600')
        self.assertIn("Retry-After", seen[4][1])
        self.assertEqual(seen[6][1], {"A": "b"})
        self.assertEqual(seen[5], b"Too many requests.\n")

    def test_asgi(self):
        from weir.asgi import LimitMiddleware

        async def app(scope, receive, send):
            await send({"type": "http.response.start", "status": 200, "headers": [(b"a", b"b")]})
            await send({"type": "http.response.body", "body": b"hello"})

        async def run():
            weir, sent = AsyncWeir(URL, timeout=30), []

            async def send(message):
                sent.append(message)
            limited = LimitMiddleware(app, self.limits(key()), weir)
            for scope in [{"type": "http", "limited": 1}] * 3 + [{"type": "lifespan", "limited": 1}]:
                await limited(scope, None, send)
            await weir.close()
            return sent
        sent = asyncio.run(run())
        self.assertEqual([m["status"] for m in sent[::2]], [200, 200, 429, 200])
        headers = dict(sent[2]["headers"])
        self.assertEqual((headers[b"a"], headers[b"ratelimit"]), (b"b", b'"default";r=0;t=3600'))
        self.assertIn(b"retry-after", dict(sent[4]["headers"]))


class TestSyncOutages(Outages, unittest.TestCase):
    pass


class TestAsyncOutages(Outages, unittest.TestCase):
    kind = Blocking


if __name__ == "__main__":
    unittest.main()
