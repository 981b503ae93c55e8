"""The commands and replies of ../../cases.json, by both clients, against a server that plays them."""

import asyncio
import json
import pathlib
import socket
import threading
import unittest

from weir import AsyncWeir, Decision, Weir, WeirError
from weir._errors import error_of
from weir._wire import Parser, encode

CASES = json.loads((pathlib.Path(__file__).parents[2] / "cases.json").read_text())["resp"]
STEPS = [(case["name"], step) for case in CASES for step in case["steps"] if "send" in step]


def reply_bytes(step):
    if "error" in step:
        return b"-%b\r\n" % step["error"].encode()
    parts = [b":%d\r\n" % v if isinstance(v, int) else b"+%b\r\n" % v.encode() for v in step["reply"]]
    return b"*%d\r\n%b" % (len(parts), b"".join(parts))


def request(step):
    """The call of a client that sends the command of a step; None if no method sends it."""
    verb, *args = step["send"]
    name = verb.partition(".")[2]
    if not verb.startswith("WEIR.") or name.lower() not in ("take", "peek", "refund", "record", "reset"):
        return None
    charges, options, i = [], {}, 0
    while i < len(args):
        if i == 0 or args[i] == "AND":
            i += args[i] == "AND"
            if i + 1 >= len(args):
                return None
            charges.append([args[i], args[i + 1]])
            i += 2
        elif args[i] == "COST" and i + 1 < len(args) and args[i + 1].isdigit():
            charges[-1].append(int(args[i + 1]))
            i += 2
        elif args[i] == "ID" and i + 1 < len(args):
            options["id"] = args[i + 1]
            i += 2
        else:
            return None
    if "id" in options and name not in ("TAKE", "REFUND") or any(len(c) > 3 for c in charges):
        return None
    if name in ("REFUND", "RECORD") and any(len(c) < 3 for c in charges) or name == "RESET" and any(len(c) > 2 for c in charges):
        return None
    if any(c[0] == "" for c in charges):
        return None
    return name.lower(), [tuple(c) for c in charges], options


class Server:
    """Answers each command with a reply that is given beforehand."""

    def __init__(self):
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"weir://127.0.0.1:{self.listener.getsockname()[1]}"
        self.replies, self.got = [], []
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        while True:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection):
        with connection:
            if connection.recv(65536):
                connection.sendall(b"+PONG\r\n")
            while data := connection.recv(65536):
                self.got.append(data)
                reply = self.replies.pop(0)
                if reply is None:
                    return
                # In two parts, as networks may deliver it.
                connection.sendall(reply[:7])
                connection.sendall(reply[7:])

    def close(self):
        self.listener.close()


class TestWire(unittest.TestCase):
    def test_all_replies_are_read(self):
        for name, step in STEPS:
            with self.subTest(name, send=step["send"]):
                for cut in (1, 5, 10000):
                    data, parser, found = reply_bytes(step), Parser(), []
                    for at in range(0, len(data), cut):
                        found += parser.feed(data[at:at + cut])
                    self.assertEqual(len(found), 1)
                    if "error" in step:
                        self.assertIsInstance(found[0], WeirError)
                        continue
                    d = Decision(found[0])
                    self.assertEqual(found[0], step["reply"])
                    self.assertEqual(bool(d), step["reply"][0] == 1)
                    self.assertEqual(len(d.limits), max(1, step["send"].count("AND") + 1))

    def test_both_clients_send_these_commands(self):
        server = Server()
        self.addCleanup(server.close)
        client, checked = Weir(server.url, timeout=60), 0

        async def ask(verb, charges, options):
            other = AsyncWeir(server.url, timeout=60)
            try:
                return await getattr(other, verb)(charges, **options)
            finally:
                await other.close()

        for name, step in STEPS:
            call = request(step)
            if call is None:
                continue
            verb, charges, options = call
            with self.subTest(name, send=step["send"]):
                answers = []
                for run in (lambda: getattr(client, verb)(charges, **options), lambda: asyncio.run(ask(verb, charges, options))):
                    server.replies, server.got = [reply_bytes(step)], []
                    try:
                        answers.append(run())
                    except WeirError as error:
                        answers.append(str(error))
                    want = [a for i, a in enumerate(step["send"]) if not _default_cost(step["send"], i)]
                    self.assertEqual(server.got, [encode(want)])
                if "error" in step:
                    self.assertEqual(answers, [str(error_of(step["error"]))] * 2)
                else:
                    for d in answers:
                        r = step["reply"]
                        self.assertEqual([int(d.allowed), d.remaining, d.retry_after_ms, d.reset_after_ms, d.granted, d.delay_ms, d.index, d.source, d.count, d.period_ms, d.burst], r[:11])
                checked += 1
        self.assertGreater(checked, 40)
        client.close()


def _default_cost(send, i):
    """Report whether an argument belongs to a COST 1 of a take, which goes without saying."""
    at = i if send[i] == "COST" else i - 1
    return send[0] == "WEIR.TAKE" and send[at] == "COST" and send[at + 1] == "1"


if __name__ == "__main__":
    unittest.main()
