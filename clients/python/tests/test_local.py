"""Decisions in an outage, by a clock that stands."""

import unittest

from weir import Decision, Weir
from weir._local import Local


class Clock:
    def __init__(self):
        self.now = 1000.0

    def __call__(self):
        return self.now


class Decisions(unittest.TestCase):
    def setUp(self):
        self.clock = Clock()
        self.local = Local(0.5, self.clock)

    def take(self, key, limit, cost=1, **options):
        return self.local.take([(key, limit)], cost, **options)

    def test_a_share_is_granted_at_once_and_the_rest_in_time(self):
        self.assertEqual([self.take("k", "20/min").remaining for _ in range(10)], list(range(9, -1, -1)))
        d = self.take("k", "20/min")
        self.assertEqual((d.allowed, d.retry_after_ms, d.reset_after_ms, d.source), (False, 6000, 60000, "client_local"))
        self.clock.now += 6
        self.assertTrue(self.take("k", "20/min"))
        self.assertFalse(self.take("k", "20/min"))
        self.assertTrue(self.take("other", "20/min"))

    def test_the_smallest_limits_keep_a_unit(self):
        self.assertTrue(self.take("k", "1/h"))
        self.assertEqual(self.take("k", "1/h").retry_after_ms, 3600000)
        self.assertTrue(self.take("k", "1/h", 2).never)

    def test_all_forms_are_read(self):
        for text, units in (
            ("10/s", 5), ("10/sec", 5), ("10/week", 5), ("10/1h30m", 5), ("10/250ms", 5), ("10/1.5s", 5), ("login=10/h", 5), ("10/min burst 4", 2),
            ("10/min sliding_log", 5), ("10/day fixed_window anchor first charge_refused", 5), ("10/30s concurrency", 5),
        ):
            local = Local(0.5, self.clock)
            granted = sum(bool(local.take([("k", text)], 1, f"id{n}")) for n in range(50))
            self.assertEqual(granted, units, text)

    def test_what_only_the_server_reads_is_not_enforced(self):
        for text in ("10/fortnight", "many/s", "", "0/s", "10/min burst 0"):
            for _ in range(30):
                self.assertTrue(self.take("k", text), text)
        both = [bool(self.local.take([("k", "ten"), ("k", "4/h")], 1)) for _ in range(3)]
        self.assertEqual(both, [True, True, False])

    def test_all_limits_are_charged_or_none(self):
        self.assertTrue(self.local.take([("a", "20/h"), ("b", "2/h")], 1))
        for _ in range(20):
            self.assertFalse(self.local.take([("a", "20/h"), ("b", "2/h")], 1))
        self.assertEqual(self.take("a", "20/h").remaining, 8)
        self.assertTrue(self.local.take([("a", "20/h", 3), ("c", "20/h")], 1))
        self.assertEqual(self.take("a", "20/h").remaining, 4)

    def test_as_many_as_fit_and_units_for_others(self):
        self.assertEqual(self.take("k", "20/h", keep=14).granted, 1)
        self.assertFalse(self.take("k", "20/h", 3, keep=14))
        self.assertTrue(self.take("k", "20/h", 2, keep=14))
        self.assertEqual(self.take("k", "20/h", up_to=100).granted, 7)
        self.assertFalse(self.take("k", "20/h", up_to=100))

    def test_a_counter_shows_what_all_have_used(self):
        def used(d):
            return 4294967295 - d.remaining
        self.assertEqual([used(self.take("k", "counter/60s", n)) for n in (1, 1, 3)], [2, 4, 10])
        self.clock.now += 59.999
        d = self.take("k", "counter/60s")
        self.assertEqual((used(d), d.reset_after_ms, d.allowed), (12, 1, True))
        self.clock.now += 0.001
        self.assertEqual(used(self.take("k", "counter/60s")), 2)

    def test_a_peek_charges_nothing(self):
        for _ in range(3):
            d = self.take("k", "8/h", 4, peek=True)
            self.assertEqual((d.allowed, d.granted), (True, 0))
        self.assertEqual(self.take("k", "8/h", 3).remaining, 1)
        d = self.take("k", "8/h", 2, peek=True)
        self.assertEqual((d.allowed, d.remaining, d.retry_after_ms), (False, 1, 900000))
        self.assertEqual(self.take("k", "8/h", 0, peek=True).remaining, 1)
        fresh = self.take("k", "counter/60s", 0, peek=True)
        self.assertEqual((fresh.remaining, fresh.reset_after_ms), (4294967295, 0))

    def test_slots_are_returned_and_renewed_and_end_by_themselves(self):
        def slot(id):
            return bool(self.take("db", "4/30s concurrency", id=id, hold=1.0))
        self.assertEqual([slot(id) for id in "abc"], [True, True, False])
        self.local.release("a")
        self.assertTrue(slot("c"))
        self.clock.now += 0.5
        self.local.renew("b", 1.0)
        self.clock.now += 0.5
        self.assertEqual([slot(id) for id in "de"], [True, False])

    def test_the_number_of_keys_is_bounded(self):
        for i in range(11000):
            self.take(f"k{i}", "2/day")
            self.take(f"k{i}", "counter/1h")
            self.take(f"k{i}", "2/30s concurrency", id="a")
            self.take("k", f"{i}/day")
        self.assertFalse(self.take("k10999", "2/day"))
        self.assertTrue(self.take("k0", "2/day"))
        sizes = [len(kept) for kept in (self.local._due, self.local._used, self.local._holders, self.local._limits)]
        self.assertEqual(sizes, [10000, 10000, 10000, 1000])


class Clients(unittest.TestCase):
    def test_headers_say_nothing_of_a_limit_that_is_not_known(self):
        with Gone() as url:
            weir = Weir(url)
            self.assertEqual(weir.take("k", "2/h").headers, {})
            self.assertEqual(list(weir.take("k", "2/h").headers), ["Retry-After"])

    def test_a_blocked_key_has_a_limit_of_0(self):
        d = Decision([0, 0, 5000, 0, 0, 0, 0, "store", 0, 60000, 0])
        self.assertEqual(d.headers, {"RateLimit-Policy": '"default";q=0;w=60', "RateLimit": '"default";r=0;t=0', "Retry-After": "5"})

    def test_a_take_keeps_to_its_options(self):
        with Gone() as url:
            weir = Weir(url)
            self.assertEqual(weir.take("k", "20/h", up_to=100, keep=14).granted, 3)
            self.assertFalse(weir.take("k", "20/h", keep=14))
            self.assertEqual(Weir(url, outage="open").take("k", "20/h", up_to=7).granted, 7)

    def test_a_hold_is_renewed_here(self):
        with Gone() as url:
            for outage in ("local", "open"):
                with Weir(url, outage=outage).hold("db", "2/30s concurrency", ttl=1.0) as hold:
                    hold.renew()


class Gone:
    """A server that cannot be reached."""

    def __enter__(self):
        import socket
        with socket.create_server(("127.0.0.1", 0)) as s:
            return f"weir://127.0.0.1:{s.getsockname()[1]}"

    def __exit__(self, *_):
        return None


if __name__ == "__main__":
    unittest.main()
