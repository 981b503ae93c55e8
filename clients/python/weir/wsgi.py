"""Middleware for WSGI applications: Flask, Django and others."""

from __future__ import annotations

from typing import Any, Callable, Iterable, Optional

from ._middleware import TEXT, response_headers
from ._sync import Weir
from ._wire import Keys


class LimitMiddleware:
    """Answer requests above their limits with 429.

    ``limits`` is a function of the WSGI environment. It returns the request's keys and limits, ``{key: limit}`` or
    ``[(key, limit[, cost])]``, which are taken together, or None for a request without a limit.
    """

    def __init__(self, app: Callable[..., Iterable[bytes]], limits: Callable[[Any], Optional[Keys]], weir: Optional[Weir] = None) -> None:
        self._app, self._limits, self._weir = app, limits, weir or Weir()

    def __call__(self, environ: Any, start_response: Callable[..., Any]) -> Iterable[bytes]:
        charges = self._limits(environ)
        if not charges:
            return self._app(environ, start_response)
        d = self._weir.take(charges)
        if not d:
            start_response("429 Too Many Requests", response_headers(d))
            return [TEXT]

        def start(status: str, headers: Any, *more: Any) -> Any:
            return start_response(status, [*headers, *d.headers.items()], *more)
        return self._app(environ, start)
