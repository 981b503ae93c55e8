"""Limits for routes of Flask."""

from __future__ import annotations

import functools
from typing import Any, Callable, TypeVar, Union

from flask import Response, after_this_request, current_app
from werkzeug.exceptions import TooManyRequests

from ._sync import Weir
from ._wire import Keys

F = TypeVar("F", bound=Callable[..., Any])


def limit(weir: Weir, *limits: str, key: Union[Keys, Callable[[], Keys]], cost: int = 1) -> Callable[[F], F]:
    """Decorate a view, below its route: each request takes ``cost`` units of the key, or raises ``TooManyRequests``.

    ``key`` is the key of all limits or, without limits, ``{key: limit}`` or ``[(key, limit[, cost])]``; or a function that
    returns it and may use ``flask.request``. Answers get the headers RateLimit, RateLimit-Policy and Retry-After. The 429 is
    that of the application's error handler.
    """
    def decorate(view: F) -> F:
        @functools.wraps(view)
        def limited(*args: Any, **named: Any) -> Any:
            d = weir.take(key() if callable(key) else key, *limits, cost=cost)

            @after_this_request
            def with_headers(response: Response) -> Response:
                response.headers.update(d.headers)
                return response
            if not d:
                raise TooManyRequests()
            return current_app.ensure_sync(view)(*args, **named)
        return limited  # type: ignore[return-value]
    return decorate
