"""Middleware for ASGI applications: FastAPI, Starlette, Litestar, Django and others."""

from __future__ import annotations

from typing import Any, Awaitable, Callable, Iterable, List, Optional, Tuple

from ._async import AsyncWeir
from ._middleware import TEXT, response_headers
from ._wire import Keys


class LimitMiddleware:
    """Answer HTTP requests above their limits with 429.

    ``limits`` is a function of the ASGI scope. It returns the request's keys and limits, ``{key: limit}`` or
    ``[(key, limit[, cost])]``, which are taken together, or None for a request without a limit.
    """

    def __init__(self, app: Callable[..., Awaitable[None]], limits: Callable[[Any], Optional[Keys]], weir: Optional[AsyncWeir] = None) -> None:
        self._app, self._limits, self._weir = app, limits, weir or AsyncWeir()

    async def __call__(self, scope: Any, receive: Callable[..., Awaitable[Any]], send: Callable[..., Awaitable[None]]) -> None:
        charges = self._limits(scope) if scope["type"] == "http" else None
        if not charges:
            await self._app(scope, receive, send)
            return
        d = await self._weir.take(charges)
        if not d:
            await send({"type": "http.response.start", "status": 429, "headers": _encoded(response_headers(d))})
            await send({"type": "http.response.body", "body": TEXT})
            return

        async def with_headers(message: Any) -> None:
            if message["type"] == "http.response.start":
                message = {**message, "headers": [*message.get("headers", []), *_encoded(d.headers.items())]}
            await send(message)
        await self._app(scope, receive, with_headers)


def _encoded(headers: Iterable[Tuple[str, str]]) -> List[Tuple[bytes, bytes]]:
    return [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in headers]
