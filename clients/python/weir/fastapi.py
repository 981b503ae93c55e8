"""Limits for routes of FastAPI, as dependencies."""

from __future__ import annotations

import inspect
from typing import Any, Callable

from fastapi import HTTPException, Request, Response

from ._async import AsyncWeir


class Limit:
    """A dependency: each request takes ``cost`` units of the key, or is answered with 429.

    ``key`` is a function of the request, or a coroutine function. It returns the key of all limits or, without limits,
    ``{key: limit}`` or ``[(key, limit[, cost])]``. Answers get the headers RateLimit, RateLimit-Policy and Retry-After.
    """

    def __init__(self, weir: AsyncWeir, *limits: str, key: Callable[[Request], Any], cost: int = 1) -> None:
        self._weir, self._limits, self._key, self._cost = weir, limits, key, cost

    async def __call__(self, request: Request, response: Response) -> None:
        key = self._key(request)
        if inspect.isawaitable(key):
            key = await key
        d = await self._weir.take(key, *self._limits, cost=self._cost)
        if not d:
            raise HTTPException(429, "Too many requests.", d.headers)
        response.headers.update(d.headers)
