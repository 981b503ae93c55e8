from __future__ import annotations

import asyncio
import collections
import functools
import time
import uuid
from typing import Any, Awaitable, Callable, Deque, List, Optional, Sequence, Tuple, TypeVar, Union

from ._base import Base, Paused, greeting_error, is_outage, log
from ._decision import Decision
from ._errors import Refused, Unavailable
from ._wire import Charge, Keys, Parser, charges_of, settled

F = TypeVar("F", bound=Callable[..., Awaitable[Any]])


class _Protocol(asyncio.Protocol):
    """One connection: commands go out together, replies come in order."""

    def __init__(self, client: "AsyncWeir") -> None:
        self._client, self._parser = client, Parser()
        self._loop = asyncio.get_running_loop()
        self._waiting: Deque[Tuple[asyncio.Future[Any], float]] = collections.deque()
        self._out: List[bytes] = []
        self._timer: Optional[asyncio.TimerHandle] = None
        self.transport: Optional[asyncio.Transport] = None
        self.closed = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport  # type: ignore[assignment]

    def data_received(self, data: bytes) -> None:
        try:
            replies = self._parser.feed(data)
        except Exception as error:
            self.end(error)
            return
        for reply in replies:
            if not self._waiting:
                self.end(Unavailable("a reply without a command"))
                return
            future, _ = self._waiting.popleft()
            if not future.done():
                future.set_result(reply)

    def connection_lost(self, error: Optional[Exception]) -> None:
        self.end(error or ConnectionError("the server closed the connection"))

    def end(self, error: Exception) -> None:
        """Close the connection and fail all calls on it."""
        self.closed = True
        if self.transport:
            self.transport.abort()
        if self._timer:
            self._timer.cancel()
            self._timer = None
        waiting, self._waiting, self._out = self._waiting, collections.deque(), []
        for future, _ in waiting:
            if not future.done():
                future.set_exception(error)

    def call(self, data: bytes) -> "asyncio.Future[Any]":
        """Send a command with those of the same turn of the loop."""
        future = self._loop.create_future()
        deadline = self._loop.time() + self._client.timeout
        self._waiting.append((future, deadline))
        if not self._out:
            self._loop.call_soon(self._flush)
        self._out.append(data)
        if self._timer is None:
            self._timer = self._loop.call_at(deadline, self._watch)
        return future

    def _flush(self) -> None:
        out, self._out = self._out, []
        if out and self.transport and not self.closed:
            self.transport.write(b"".join(out))

    def _watch(self) -> None:
        # One timer for all calls: the oldest one without a reply tells whether the server answers.
        self._timer = None
        if not self._waiting:
            return
        deadline = self._waiting[0][1]
        if deadline <= self._loop.time():
            self.end(asyncio.TimeoutError("timed out"))
        else:
            self._timer = self._loop.call_at(deadline, self._watch)


class AsyncWeir(Base):
    """A client for asyncio. Calls of one turn of the loop share one write. It is safe for tasks of one loop;
    a second loop gets a connection of its own."""

    def __init__(self, url: Optional[str] = None, **options: Any) -> None:
        super().__init__(url, **options)
        self._protocol: Optional[_Protocol] = None
        self._opening: Optional[asyncio.Task[_Protocol]] = None

    __init__.__doc__ = Base.__init__.__doc__

    async def _open(self) -> _Protocol:
        loop = asyncio.get_running_loop()
        if self.path:
            _, protocol = await loop.create_unix_connection(lambda: _Protocol(self), self.path)
        else:
            _, protocol = await loop.create_connection(
                lambda: _Protocol(self), self.host, self.port, ssl=self._ssl, server_hostname=self.host if self._ssl else None)
        answer = await protocol.call(self._greeting)
        if isinstance(answer, Exception):
            error = greeting_error(answer)
            protocol.end(error)
            raise error
        self._protocol = protocol
        return protocol

    async def _connection(self) -> _Protocol:
        protocol = self._protocol
        loop = asyncio.get_running_loop()
        if protocol and not protocol.closed and protocol._loop is loop:
            return protocol
        if self._opening is None or self._opening.done() or self._opening.get_loop() is not loop:
            self._opening = loop.create_task(self._open())
        # A caller that leaves must not end the connection of the others.
        return await asyncio.wait_for(asyncio.shield(self._opening), self.timeout)

    async def _roundtrip(self, data: bytes, repeat: bool) -> Any:
        while True:
            protocol = await self._connection()
            try:
                return await protocol.call(data)
            except ConnectionError:
                # The bytes may have arrived: only a command with an ID may be sent twice.
                if not repeat:
                    raise
                repeat = False

    async def _do(self, verb: str, charges: List[Charge], cost: Optional[int] = None, id: Optional[str] = None, **options: Any) -> Decision:
        units = cost if cost is not None else 0 if verb == "WEIR.PEEK" else 1
        data = self._command(verb, charges, cost, id, **options)
        if self._paused():
            return self._without(verb, charges, units, id, Paused("the server could not be reached a moment ago"), options)
        try:
            answer = await self._roundtrip(data, id is not None)
        except Exception as error:
            if not isinstance(error, (OSError, asyncio.TimeoutError)) and not is_outage(error):
                raise
            self._failed(error)
            return self._without(verb, charges, units, id, error, options)
        if not isinstance(answer, Exception):
            return Decision(answer)
        if not is_outage(answer):
            raise answer
        self._failed(answer, answered=True)
        return self._without(verb, charges, units, id, answer, options)

    async def check(self) -> None:
        """Like :meth:`Weir.check`."""
        answer = await self._roundtrip(self._command("WEIR.PEEK", [("check", "1/s")]), True)
        if isinstance(answer, Exception):
            raise answer
        self._retry_at = 0.0

    async def take(self, key: Keys, *limits: str, cost: int = 1, id: Optional[str] = None, up_to: Optional[int] = None, keep: Optional[int] = None) -> Decision:
        """Like :meth:`Weir.take`."""
        return await self._do("WEIR.TAKE", charges_of(key, limits), None if up_to is not None else cost, id, up_to=up_to, keep=keep)

    async def peek(self, key: Keys, *limits: str, cost: int = 0) -> Decision:
        """Like :meth:`Weir.peek`."""
        return await self._do("WEIR.PEEK", charges_of(key, limits), cost or None)

    async def refund(self, key: Keys, *limits: str, cost: int = 1, id: Optional[str] = None) -> Decision:
        """Like :meth:`Weir.refund`."""
        return await self._do("WEIR.REFUND", charges_of(key, limits), cost, id)

    async def record(self, key: Keys, *limits: str, cost: int = 1) -> Decision:
        """Like :meth:`Weir.record`."""
        return await self._do("WEIR.RECORD", charges_of(key, limits), cost)

    async def reset(self, key: Keys, *limits: str) -> Decision:
        """Like :meth:`Weir.reset`."""
        return await self._do("WEIR.RESET", charges_of(key, limits))

    async def wait(self, key: Keys, *limits: str, cost: int = 1, timeout: float = 30.0) -> Decision:
        """Like :meth:`Weir.wait`."""
        until = time.monotonic() + timeout
        while True:
            d = await self.take(key, *limits, cost=cost)
            if d:
                return d
            if d.never or time.monotonic() + d.retry_after_ms / 1000 > until:
                raise Refused(d)
            await asyncio.sleep(max(d.retry_after_ms, 1) / 1000)

    def hold(self, key: Keys, *limits: str, cost: int = 1, ttl: float = 60.0) -> "AsyncHold":
        """Like :meth:`Weir.hold`, for ``async with`` or ``await``."""
        return AsyncHold(self, charges_of(key, limits), cost, ttl)

    def limit(self, *limits: str, key: Union[str, Callable[..., Any]], cost: int = 1) -> Callable[[F], F]:
        """Like :meth:`Weir.limit`, for coroutine functions."""
        def decorate(function: F) -> F:
            @functools.wraps(function)
            async def limited(*args: Any, **named: Any) -> Any:
                d = await self.take(key(*args, **named) if callable(key) else key, *limits, cost=cost)
                if not d:
                    raise Refused(d)
                return await function(*args, **named)
            return limited  # type: ignore[return-value]
        return decorate

    async def close(self) -> None:
        """Close the connection. The client stays usable."""
        if self._protocol:
            self._protocol.end(ConnectionError("the client was closed"))
            self._protocol = None


class AsyncHold:
    """Like :class:`Hold`. Nothing is asked before ``await`` or ``async with``."""

    decision: Decision

    def __init__(self, client: AsyncWeir, charges: List[Charge], cost: int, ttl: float) -> None:
        self._client, self._charges, self._cost, self._ttl, self._ended = client, charges, cost, ttl, False
        self.id = uuid.uuid4().hex

    def __await__(self) -> Any:
        return self._begin().__await__()

    async def _begin(self) -> "AsyncHold":
        self.decision = await self._client._do("WEIR.TAKE", self._charges, self._cost, self.id, hold=self._ttl)
        if not self.decision:
            raise Refused(self.decision)
        return self

    async def _end(self, verb: str, charges: List[Charge], cost: Optional[int] = None) -> None:
        self._ended = True
        if self.decision.source.startswith("client_"):
            self._client._local.release(self.id)
            return
        try:
            await self._client._do(verb, charges, cost, self.id)
        except Unavailable as error:
            if self._client.outage == "raise":
                raise
            log.warning("a hold stays charged as estimated: %s", error)

    async def settle(self, used: Union[int, Sequence[int]]) -> None:
        """Like :meth:`Hold.settle`."""
        await self._end("WEIR.SETTLE", settled(self._charges, used))

    async def release(self) -> None:
        """Like :meth:`Hold.release`."""
        await self._end("WEIR.RELEASE", self._charges)

    async def renew(self) -> None:
        """Like :meth:`Hold.renew`."""
        if self.decision.source == "client_local":
            self._client._local.renew(self.id, self._ttl)
        elif not self.decision.source.startswith("client_"):
            await self._client._do("WEIR.RENEW", self._charges, None, self.id, hold=self._ttl)

    async def __aenter__(self) -> "AsyncHold":
        return await self._begin()

    async def __aexit__(self, kind: Any, *_: Any) -> None:
        if not self._ended:
            await (self.release() if kind else self._end("WEIR.SETTLE", self._charges, self._cost))
