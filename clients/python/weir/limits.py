"""Storages for the package ``limits``, on which Flask-Limiter and slowapi stand.

Import this module once; then ``weir://HOST:PORT`` is a storage URI, and ``async+weir://HOST:PORT`` one for asyncio (with
``weirs`` for TLS, and ``weir+unix:///PATH`` for a Unix socket). Storage options are those of :class:`weir.Weir`. The strategies become Weir's algorithms: fixed-window
``fixed_window``, moving-window ``sliding_log`` (``rolling_window`` above 100 000), and sliding-window-counter
``rolling_window``, which is exact where the strategy estimates.

Each strategy is a limit of its own, so refused hits cost nothing, and in an outage the client's policy decides.
"""

from __future__ import annotations

import asyncio
import hashlib
import time
from typing import Any, List, Optional, Tuple, Type

from limits.aio.storage import MovingWindowSupport as AsyncMovingWindowSupport
from limits.aio.storage import SlidingWindowCounterSupport as AsyncSlidingWindowCounterSupport
from limits.aio.storage import Storage as AsyncStorage
from limits.limits import GRANULARITIES
from limits.storage import MovingWindowSupport, SlidingWindowCounterSupport, Storage

from ._async import AsyncWeir
from ._decision import Decision
from ._errors import WeirError
from ._sync import Weir

__all__ = ["AsyncWeirStorage", "WeirStorage"]

_LONGEST_KEY = 512  # bytes; longer ones, which clients may send, go by their hash
_LARGEST_LOG = 100000


def _key(key: str) -> str:
    data = key.encode()
    return key if len(data) <= _LONGEST_KEY else "sha256:" + hashlib.sha256(data).hexdigest()


def _numbers(key: str) -> Tuple[int, int]:
    """Return the amount and the seconds of a limit from the end of its key: "…/AMOUNT/MULTIPLES/GRANULARITY"."""
    try:
        _, amount, multiples, name = key.rsplit("/", 3)
        return int(amount), int(multiples) * GRANULARITIES[name].GRANULARITY.seconds
    except (ValueError, KeyError):
        raise ValueError(f"key is {key!r}: want one of RateLimitItem.key_for") from None


def _fixed(amount: int, seconds: int) -> str:
    return f"{amount}/{seconds}s fixed_window anchor first"


def _moving(amount: int, seconds: int) -> str:
    return f"{amount}/{seconds}s " + ("sliding_log" if amount <= _LARGEST_LOG else "rolling_window buckets 3600")


def _sliding(amount: int, seconds: int) -> str:
    # A unit may count for a bucket longer than the window: half a percent of it.
    return f"{amount}/{seconds}s rolling_window buckets 200"


def _all(key: str) -> List[Tuple[str, str]]:
    """Return the limits of all strategies. A budget belongs to the algorithm, not to its buckets."""
    amount, seconds = _numbers(key)
    found = [(_key(key), _fixed(amount, seconds)), (_key(key), _sliding(amount, seconds))]
    if amount <= _LARGEST_LOG:
        found.append((_key(key), _moving(amount, seconds)))
    return found


def _count(d: Decision, amount: int, cost: int) -> int:
    """Return the count after a hit: above the amount if it was refused."""
    return amount - min(d.remaining, amount) if d else amount + cost


def _used(d: Decision, amount: int) -> int:
    return 0 if d.source == "client_open" else max(0, amount - d.remaining)


def _within(frees: float, seconds: int) -> float:
    # The strategy takes it modulo the window, and a bucket may stay a little longer than that.
    return min(frees, seconds - 0.001)


class WeirStorage(Storage, MovingWindowSupport, SlidingWindowCounterSupport):
    """A storage over :class:`weir.Weir`. Keys are those of ``RateLimitItem.key_for``, which end with the limit."""

    STORAGE_SCHEME = ["weir", "weirs", "weir+unix"]
    weir: Weir

    def __init__(self, uri: Optional[str] = None, wrap_exceptions: bool = False, **options: Any) -> None:
        super().__init__(uri, wrap_exceptions)
        self.weir = Weir(uri, **options)
        self.storage = self.weir.address  # "flask limiter config" prints it

    @property
    def base_exceptions(self) -> Type[Exception]:
        return WeirError

    def incr(self, key: str, expiry: int, amount: int = 1) -> int:
        most, _ = _numbers(key)
        return _count(self.weir.take(_key(key), _fixed(most, expiry), cost=amount), most, amount)

    def get(self, key: str) -> int:
        amount, seconds = _numbers(key)
        return _used(self.weir.peek(_key(key), _fixed(amount, seconds)), amount)

    def get_expiry(self, key: str) -> float:
        return time.time() + self.weir.peek(_key(key), _fixed(*_numbers(key))).reset_after_ms / 1000

    def check(self) -> bool:
        try:
            self.weir.check()
        except (WeirError, OSError):
            return False
        return True

    def reset(self) -> Optional[int]:
        raise NotImplementedError("Weir forgets keys one by one: use clear")

    def clear(self, key: str) -> None:
        self.weir.reset(_all(key))

    def acquire_entry(self, key: str, limit: int, expiry: int, amount: int = 1) -> bool:
        return bool(self.weir.take(_key(key), _moving(limit, expiry), cost=amount))

    def get_moving_window(self, key: str, limit: int, expiry: int) -> Tuple[float, int]:
        used, frees = self._state(key, limit, _moving(limit, expiry))
        return time.time() + (frees - expiry if used else 0), used

    def acquire_sliding_window_entry(self, key: str, limit: int, expiry: int, amount: int = 1) -> bool:
        return bool(self.weir.take(_key(key), _sliding(limit, expiry), cost=amount))

    def get_sliding_window(self, key: str, expiry: int) -> Tuple[int, float, int, float]:
        amount, _ = _numbers(key)
        used, frees = self._state(key, amount, _sliding(amount, expiry))
        return 0, 0.0, used, _within(frees, expiry)

    def clear_sliding_window(self, key: str, expiry: int) -> None:
        self.clear(key)

    def _state(self, key: str, amount: int, limit: str) -> Tuple[int, float]:
        """Return the used units, and the seconds until the oldest of them are free again."""
        d = self.weir.peek(_key(key), limit, cost=1)
        used = _used(d, amount)
        if used and d:
            d = self.weir.peek(_key(key), limit, cost=d.remaining + 1)
        return used, max(0, d.retry_after_ms) / 1000


class AsyncWeirStorage(AsyncStorage, AsyncMovingWindowSupport, AsyncSlidingWindowCounterSupport):
    """Like :class:`WeirStorage`, for asyncio."""

    STORAGE_SCHEME = ["async+weir", "async+weirs", "async+weir+unix"]
    weir: AsyncWeir

    def __init__(self, uri: Optional[str] = None, wrap_exceptions: bool = False, **options: Any) -> None:
        super().__init__(uri, wrap_exceptions)
        self.weir = AsyncWeir((uri or "").replace("async+", "", 1), **options)
        self.storage = self.weir.address  # "flask limiter config" prints it

    @property
    def base_exceptions(self) -> Type[Exception]:
        return WeirError

    async def incr(self, key: str, expiry: int, amount: int = 1) -> int:
        most, _ = _numbers(key)
        return _count(await self.weir.take(_key(key), _fixed(most, expiry), cost=amount), most, amount)

    async def get(self, key: str) -> int:
        amount, seconds = _numbers(key)
        return _used(await self.weir.peek(_key(key), _fixed(amount, seconds)), amount)

    async def get_expiry(self, key: str) -> float:
        return time.time() + (await self.weir.peek(_key(key), _fixed(*_numbers(key)))).reset_after_ms / 1000

    async def check(self) -> bool:
        try:
            await self.weir.check()
        except (WeirError, OSError, asyncio.TimeoutError):
            return False
        return True

    async def reset(self) -> Optional[int]:
        raise NotImplementedError("Weir forgets keys one by one: use clear")

    async def clear(self, key: str) -> None:
        await self.weir.reset(_all(key))

    async def acquire_entry(self, key: str, limit: int, expiry: int, amount: int = 1) -> bool:
        return bool(await self.weir.take(_key(key), _moving(limit, expiry), cost=amount))

    async def get_moving_window(self, key: str, limit: int, expiry: int) -> Tuple[float, int]:
        used, frees = await self._state(key, limit, _moving(limit, expiry))
        return time.time() + (frees - expiry if used else 0), used

    async def acquire_sliding_window_entry(self, key: str, limit: int, expiry: int, amount: int = 1) -> bool:
        return bool(await self.weir.take(_key(key), _sliding(limit, expiry), cost=amount))

    async def get_sliding_window(self, key: str, expiry: int) -> Tuple[int, float, int, float]:
        amount, _ = _numbers(key)
        used, frees = await self._state(key, amount, _sliding(amount, expiry))
        return 0, 0.0, used, _within(frees, expiry)

    async def clear_sliding_window(self, key: str, expiry: int) -> None:
        await self.clear(key)

    async def _state(self, key: str, amount: int, limit: str) -> Tuple[int, float]:
        """Like :meth:`WeirStorage._state`."""
        d = await self.weir.peek(_key(key), limit, cost=1)
        used = _used(d, amount)
        if used and d:
            d = await self.weir.peek(_key(key), limit, cost=d.remaining + 1)
        return used, max(0, d.retry_after_ms) / 1000
