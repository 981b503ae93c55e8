"""Transports for HTTPX that take a call's turn before it leaves."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import Callable, Dict, Optional

import httpx

from ._async import AsyncWeir
from ._decision import Decision
from ._errors import Refused
from ._sync import Weir
from ._wire import Keys

__all__ = ["AsyncLimitTransport", "LimitTransport", "RequestRefused"]

_MOST = 1000  # hosts whose Retry-After is remembered


class RequestRefused(httpx.TransportError):
    """The request did not leave, since its turn is later than it may wait.

    ``decision`` says when that is, or is None if it was the host that asked to retry later.
    """

    def __init__(self, message: str, request: httpx.Request, decision: Optional[Decision] = None) -> None:
        super().__init__(message, request=request)
        self.decision = decision


class _Hosts:
    """Until when hosts asked for no request: a 429 or 503 with Retry-After in seconds."""

    def __init__(self) -> None:
        self._until: Dict[str, float] = {}
        self._lock = threading.Lock()

    def left(self, host: str) -> float:
        return self._until.get(host, 0.0) - time.monotonic()

    def note(self, host: str, response: httpx.Response) -> None:
        after = response.headers.get("Retry-After", "")
        if response.status_code not in (429, 503) or not (after.isascii() and after.isdigit() and len(after) < 10):
            return
        with self._lock:
            if len(self._until) >= _MOST:
                self._until.clear()
            self._until[host] = time.monotonic() + int(after)


class _Transport:
    def __init__(self, limits: Callable[[httpx.Request], Optional[Keys]], wait: float) -> None:
        self._limits, self._wait, self._hosts = limits, wait, _Hosts()

    def _host_allows(self, request: httpx.Request) -> float:
        """Return the seconds to sleep before the request."""
        left = self._hosts.left(request.url.netloc.decode())
        if left > self._wait:
            raise RequestRefused(f"refused: {request.url.host} asked to retry after {left:.0f} s", request)
        return max(0.0, left)


class LimitTransport(_Transport, httpx.BaseTransport):
    """Take the units of each request before it is sent.

    ``limits`` is a function of the request. It returns keys and limits, ``{key: limit}`` or ``[(key, limit[, cost])]``, or None
    for a request without a limit. A request waits for at most ``wait`` seconds for its turn. If that is later, it raises
    :class:`RequestRefused` at once; 0 never waits. A host whose 429 or 503 has Retry-After gets no limited request before
    that. No request is sent twice. ``transport`` sends the requests.
    """

    def __init__(self, limits: Callable[[httpx.Request], Optional[Keys]], weir: Optional[Weir] = None, *,
                 wait: float = 30.0, transport: Optional[httpx.BaseTransport] = None) -> None:
        super().__init__(limits, wait)
        self._weir, self._transport = weir or Weir(), transport or httpx.HTTPTransport()

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        charges = self._limits(request)
        if charges is None:
            return self._transport.handle_request(request)
        pause = self._host_allows(request)
        time.sleep(pause)
        try:
            self._weir.wait(charges, timeout=self._wait - pause)
        except Refused as error:
            raise RequestRefused(str(error), request, error.decision) from None
        response = self._transport.handle_request(request)
        self._hosts.note(request.url.netloc.decode(), response)
        return response

    def close(self) -> None:
        self._transport.close()


class AsyncLimitTransport(_Transport, httpx.AsyncBaseTransport):
    """Like :class:`LimitTransport`, for ``httpx.AsyncClient``."""

    def __init__(self, limits: Callable[[httpx.Request], Optional[Keys]], weir: Optional[AsyncWeir] = None, *,
                 wait: float = 30.0, transport: Optional[httpx.AsyncBaseTransport] = None) -> None:
        super().__init__(limits, wait)
        self._weir, self._transport = weir or AsyncWeir(), transport or httpx.AsyncHTTPTransport()

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        charges = self._limits(request)
        if charges is None:
            return await self._transport.handle_async_request(request)
        pause = self._host_allows(request)
        await asyncio.sleep(pause)
        try:
            await self._weir.wait(charges, timeout=self._wait - pause)
        except Refused as error:
            raise RequestRefused(str(error), request, error.decision) from None
        response = await self._transport.handle_async_request(request)
        self._hosts.note(request.url.netloc.decode(), response)
        return response

    async def aclose(self) -> None:
        await self._transport.aclose()
