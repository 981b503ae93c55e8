from __future__ import annotations

import collections
import functools
import os
import select
import socket
import time
import uuid
from typing import Any, Callable, Deque, List, Optional, Sequence, TypeVar, Union

from ._base import Base, Paused, greeting_error, is_outage, log
from ._decision import Decision
from ._errors import Refused, Unavailable
from ._wire import Charge, Keys, Parser, charges_of, settled

F = TypeVar("F", bound=Callable[..., Any])


class _Connection:
    """One connection; one call at a time."""

    def __init__(self, client: "Weir", deadline: float) -> None:
        raw = socket.socket(socket.AF_UNIX) if client.path else socket.create_connection((client.host, client.port), _left(deadline))
        try:
            if client.path:
                raw.settimeout(_left(deadline))
                raw.connect(client.path)
            else:
                raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            raw.settimeout(_left(deadline))
            self._socket = client._ssl.wrap_socket(raw, server_hostname=client.host) if client._ssl else raw
            self._parser = Parser()
            answer = self.call(client._greeting, deadline)
            if isinstance(answer, Exception):
                raise greeting_error(answer)
        except BaseException:
            raw.close()
            raise

    def call(self, data: bytes, deadline: float) -> Any:
        self._socket.settimeout(_left(deadline))
        self._socket.sendall(data)
        while True:
            self._socket.settimeout(_left(deadline))
            received = self._socket.recv(65536)
            if not received:
                raise ConnectionError("the server closed the connection")
            replies = self._parser.feed(received)
            if replies:
                return replies[0]

    def dead(self) -> bool:
        """Report whether an idle connection was closed by the server: it is readable."""
        poll = select.poll()
        poll.register(self._socket, select.POLLIN | select.POLLHUP | select.POLLERR)
        return bool(poll.poll(0))

    def close(self) -> None:
        self._socket.close()


def _left(deadline: float) -> float:
    left = deadline - time.monotonic()
    if left <= 0:
        raise socket.timeout("timed out")
    return left


class Weir(Base):
    """A blocking client. It is safe for threads, and for processes that are forked: each call has a connection of its own,
    and up to 64 idle ones are kept. Nothing is connected before the first call."""

    def __init__(self, url: Optional[str] = None, **options: Any) -> None:
        super().__init__(url, **options)
        self._idle: Deque[_Connection] = collections.deque(maxlen=64)
        self._pid = os.getpid()

    __init__.__doc__ = Base.__init__.__doc__

    def _roundtrip(self, data: bytes, repeat: bool) -> Any:
        if self._pid != os.getpid():
            # Connections belong to the parent of a forked process.
            self._pid = os.getpid()
            self.close()
        deadline = time.monotonic() + self.timeout
        while True:
            connection = None
            while connection is None:
                try:
                    connection = self._idle.pop()
                except IndexError:
                    connection = _Connection(self, deadline)
                else:
                    if connection.dead():
                        connection.close()
                        connection = None
            try:
                answer = connection.call(data, deadline)
            except ConnectionError:
                connection.close()
                # The bytes may have arrived: only a command with an ID may be sent twice.
                if not repeat:
                    raise
                repeat = False
                continue
            except BaseException:
                connection.close()
                raise
            if len(self._idle) < 64:
                self._idle.append(connection)
            else:
                connection.close()
            return answer

    def _do(self, verb: str, charges: List[Charge], cost: Optional[int] = None, id: Optional[str] = None, **options: Any) -> Decision:
        units = cost if cost is not None else 0 if verb == "WEIR.PEEK" else 1
        data = self._command(verb, charges, cost, id, **options)
        if self._paused():
            return self._without(verb, charges, units, id, Paused("the server could not be reached a moment ago"), options)
        try:
            answer = self._roundtrip(data, id is not None)
        except Exception as error:
            if not isinstance(error, OSError) and not is_outage(error):
                raise
            self._failed(error)
            return self._without(verb, charges, units, id, error, options)
        if not isinstance(answer, Exception):
            return Decision(answer)
        if not is_outage(answer):
            raise answer
        self._failed(answer, answered=True)
        return self._without(verb, charges, units, id, answer, options)

    def check(self) -> None:
        """Ask the server for an answer, and raise what is wrong: :class:`Forbidden` for credentials, OSError or
        :class:`Unavailable` if it cannot be reached. For the start of a program."""
        answer = self._roundtrip(self._command("WEIR.PEEK", [("check", "1/s")]), True)
        if isinstance(answer, Exception):
            raise answer
        self._retry_at = 0.0

    def take(self, key: Keys, *limits: str, cost: int = 1, id: Optional[str] = None, up_to: Optional[int] = None, keep: Optional[int] = None) -> Decision:
        """Charge ``cost`` units to all limits, or to none.

        ``key`` is one key for all limits, ``{key: limit}``, or ``[(key, limit[, cost])]``. A take with an ``id`` happens once,
        however often it is repeated. ``up_to`` takes as many units as fit, at most so many; ``keep`` leaves so many for others.
        """
        return self._do("WEIR.TAKE", charges_of(key, limits), None if up_to is not None else cost, id, up_to=up_to, keep=keep)

    def peek(self, key: Keys, *limits: str, cost: int = 0) -> Decision:
        """Say whether ``cost`` units would fit, and when, and charge nothing."""
        return self._do("WEIR.PEEK", charges_of(key, limits), cost or None)

    def refund(self, key: Keys, *limits: str, cost: int = 1, id: Optional[str] = None) -> Decision:
        """Return units: those of the take with the ``id``, else the newest of each key, never below zero."""
        return self._do("WEIR.REFUND", charges_of(key, limits), cost, id)

    def record(self, key: Keys, *limits: str, cost: int = 1) -> Decision:
        """Charge units that were used already, beyond the limit if need be."""
        return self._do("WEIR.RECORD", charges_of(key, limits), cost)

    def reset(self, key: Keys, *limits: str) -> Decision:
        """Forget what was used."""
        return self._do("WEIR.RESET", charges_of(key, limits))

    def wait(self, key: Keys, *limits: str, cost: int = 1, timeout: float = 30.0) -> Decision:
        """Sleep until the units fit, and take them. Raise :class:`Refused` at once if that is later than ``timeout`` seconds."""
        until = time.monotonic() + timeout
        while True:
            d = self.take(key, *limits, cost=cost)
            if d:
                return d
            if d.never or time.monotonic() + d.retry_after_ms / 1000 > until:
                raise Refused(d)
            time.sleep(max(d.retry_after_ms, 1) / 1000)

    def hold(self, key: Keys, *limits: str, cost: int = 1, ttl: float = 60.0) -> "Hold":
        """Charge an estimate and return a context manager; raise :class:`Refused` if it does not fit.

        Leaving it without :meth:`Hold.settle` charges the estimate, and an exception returns it. A process that is killed
        keeps slots for ``ttl`` seconds, and other units charged.
        """
        charges, id = charges_of(key, limits), uuid.uuid4().hex
        d = self._do("WEIR.TAKE", charges, cost, id, hold=ttl)
        if not d:
            raise Refused(d)
        return Hold(self, charges, id, d, cost, ttl)

    def limit(self, *limits: str, key: Union[str, Callable[..., Any]], cost: int = 1) -> Callable[[F], F]:
        """Decorate a function: each call takes ``cost`` units of the key, or raises :class:`Refused`.

        ``key`` is the key, or a function of the call's arguments that returns it.
        """
        def decorate(function: F) -> F:
            @functools.wraps(function)
            def limited(*args: Any, **named: Any) -> Any:
                d = self.take(key(*args, **named) if callable(key) else key, *limits, cost=cost)
                if not d:
                    raise Refused(d)
                return function(*args, **named)
            return limited  # type: ignore[return-value]
        return decorate

    def close(self) -> None:
        """Close idle connections. The client stays usable."""
        while self._idle:
            self._idle.pop().close()


class Hold:
    """Units that are held until they are settled or released. A context manager."""

    def __init__(self, client: Weir, charges: List[Charge], id: str, decision: Decision, cost: int, ttl: float) -> None:
        self._client, self._charges, self._cost, self._ttl, self._ended = client, charges, cost, ttl, False
        self.id, self.decision = id, decision

    def _end(self, verb: str, charges: List[Charge], cost: Optional[int] = None) -> None:
        self._ended = True
        if self.decision.source.startswith("client_"):
            self._client._local.release(self.id)
            return
        try:
            self._client._do(verb, charges, cost, self.id)
        except Unavailable as error:
            if self._client.outage == "raise":
                raise
            log.warning("a hold stays charged as estimated: %s", error)

    def settle(self, used: Union[int, Sequence[int]]) -> None:
        """Charge what was used, more or less than the estimate: one number for all charges, or one for each. In an outage
        the estimate stays charged."""
        self._end("WEIR.SETTLE", settled(self._charges, used))

    def release(self) -> None:
        """Return all units."""
        self._end("WEIR.RELEASE", self._charges)

    def renew(self) -> None:
        """Keep slots for another ``ttl`` seconds."""
        if self.decision.source == "client_local":
            self._client._local.renew(self.id, self._ttl)
        elif not self.decision.source.startswith("client_"):
            self._client._do("WEIR.RENEW", self._charges, None, self.id, hold=self._ttl)

    def __enter__(self) -> "Hold":
        return self

    def __exit__(self, kind: Any, *_: Any) -> None:
        if not self._ended:
            self.release() if kind else self._end("WEIR.SETTLE", self._charges, self._cost)
