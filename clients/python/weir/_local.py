"""Decisions in an outage: this process enforces a share of each limit by itself."""

from __future__ import annotations

import math
import re
import threading
import time
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

from ._decision import Decision
from ._wire import Charge

_MOST_KEYS, _MOST_LIMITS = 10000, 1000  # that are remembered
_COUNTER = 4294967295
_ROUND = 1e-9
_SECONDS = {
    **dict.fromkeys(("s", "sec", "second"), 1.0), **dict.fromkeys(("m", "min", "minute"), 60.0),
    **dict.fromkeys(("h", "hr", "hour"), 3600.0), **dict.fromkeys(("d", "day"), 86400.0),
    **dict.fromkeys(("w", "week"), 604800.0), "month": 2592000.0, "year": 31536000.0,
}
_PARTS = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}


class Limit:
    """The parts of a limit's text that a local decision needs."""

    __slots__ = ("budget", "count", "period", "burst", "slots", "counts")

    def __init__(self, text: str) -> None:
        numbers, _, rest = text.partition("/")
        name, _, numbers = numbers.rpartition("=")
        words = rest.split()
        self.budget = name or text
        self.counts, self.slots = numbers == "counter", "concurrency" in words
        self.count = _COUNTER if self.counts else int(numbers)
        self.period = _period(words[0])
        self.burst = int(words[words.index("burst") + 1]) if "burst" in words else self.count
        if self.count < 1 or self.burst < 1 or self.period <= 0:
            raise ValueError(text)


def _period(word: str) -> float:
    if word in _SECONDS:
        return _SECONDS[word]
    parts = re.findall(r"([0-9.]+)(ms|us|ns|h|m|s)", word)
    if not parts or "".join(n + u for n, u in parts) != word:
        raise ValueError(word)
    return sum(float(n) * _PARTS[u] for n, u in parts)


def _keep(entries: Dict[Any, Any], key: Any, value: Any, most: int = _MOST_KEYS) -> None:
    """Set an entry, and forget the oldest if there are too many."""
    entries.pop(key, None)
    entries[key] = value
    if len(entries) > most:
        del entries[next(iter(entries))]


class _Plan:
    """What a limit has room for, in units that ``size`` makes of those of the call, and how to charge it."""

    own: Optional[int]  # the charge's cost, if it has one of its own
    units = 0.0
    burst: float
    room: float

    def size(self, units: float) -> float:
        return units

    def wait(self, missing: float) -> float:
        raise NotImplementedError

    def reset(self, units: float) -> float:
        """Return the seconds until nothing is used any more."""
        raise NotImplementedError

    def charge(self, units: float, id: str, hold: Optional[float]) -> None:
        raise NotImplementedError


class _Rate(_Plan):
    """GCRA with a share of the limit."""

    def __init__(self, local: "Local", key: Any, limit: Limit, now: float) -> None:
        self._entries, self._key, self._now = local._due, key, now
        count = max(1.0, limit.count * local._share)
        self._each, self.burst = limit.period / count, max(1.0, limit.burst * local._share)
        self._due = max(self._entries.get(key, now), now)
        self.room = self.burst - (self._due - now) / self._each

    def wait(self, missing: float) -> float:
        return missing * self._each

    def reset(self, units: float) -> float:
        return self._due + units * self._each - self._now

    def charge(self, units: float, id: str, hold: Optional[float]) -> None:
        _keep(self._entries, self._key, self._due + units * self._each)


class _Slots(_Plan):
    """A share of the slots, by the ends of their leases."""

    def __init__(self, local: "Local", key: Any, limit: Limit, now: float) -> None:
        self._entries, self._key, self._now, self._period = local._holders, key, now, limit.period
        self._holders = {h: end for h, end in self._entries.get(key, {}).items() if end > now}
        self.burst = math.floor(max(1.0, limit.count * local._share))
        self.room = self.burst - len(self._holders)

    def wait(self, missing: float) -> float:
        return 1.0

    def reset(self, units: float) -> float:
        return max([end - self._now for end in self._holders.values()] + [self._period if units else 0.0])

    def charge(self, units: float, id: str, hold: Optional[float]) -> None:
        _keep(self._entries, self._key, {**self._holders, id: self._now + (hold or self._period)})


class _Counter(_Plan):
    """A counter, which shows what all processes have used if each uses as much as this one."""

    burst = float(_COUNTER)

    def __init__(self, local: "Local", key: Any, limit: Limit, now: float) -> None:
        self._entries, self._key, self._now, self._share = local._used, key, now, local._share
        used, end = self._entries.get(key, (0.0, 0.0))
        self._used, self._end = (used, end) if end > now else (0.0, now + limit.period)
        self.room = _COUNTER - self._used

    def size(self, units: float) -> float:
        return units / self._share

    def wait(self, missing: float) -> float:
        return self._end - self._now

    def reset(self, units: float) -> float:
        return self._end - self._now if self._used + units > 0 else 0.0

    def charge(self, units: float, id: str, hold: Optional[float]) -> None:
        _keep(self._entries, self._key, (self._used + units, self._end))


class Local:
    """Enforces a share of each limit by GCRA, and of slots by counting their holders. Safe for threads."""

    def __init__(self, share: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._share, self._clock, self._lock = share, clock, threading.Lock()
        self._due: Dict[Tuple[Any, str], float] = {}  # when nothing is used any more
        self._used: Dict[Tuple[Any, str], Tuple[float, float]] = {}  # of counters: the units of a window, and its end
        self._holders: Dict[Tuple[Any, str], Dict[str, float]] = {}  # of slots: the ends of leases, by ID
        self._limits: Dict[str, Optional[Limit]] = {}

    def _limit(self, text: str) -> Optional[Limit]:
        if text not in self._limits:
            try:
                limit = Limit(text)
            except (ValueError, IndexError):
                limit = None
            _keep(self._limits, text, limit, _MOST_LIMITS)
        return self._limits[text]

    def _plan(self, charge: Charge, now: float) -> Optional[_Plan]:
        key, text, *own = charge
        limit = self._limit(text)
        if limit is None:
            return None
        form = _Counter if limit.counts else _Slots if limit.slots else _Rate
        plan: _Plan = form(self, (key, limit.budget), limit, now)
        plan.own = own[0] if own else None
        return plan

    def take(
        self, charges: Sequence[Charge], cost: int, id: str = "", peek: bool = False, keep: int = 0, up_to: Optional[int] = None,
        hold: Optional[float] = None,
    ) -> Decision:
        """Decide all or none; a peek charges nothing. A limit in a form that only the server reads is not enforced."""
        with self._lock:
            now = self._clock()
            plans: List[_Plan] = [p for p in (self._plan(c, now) for c in charges) if p is not None]
            kept, units = keep * self._share, cost
            if up_to is not None:
                units = max(1, min([up_to] + [math.floor(p.room - kept + _ROUND) for p in plans]))
            wait, never = 0.0, False
            for p in plans:
                p.units = p.size(units if p.own is None else p.own)
                missing = p.units + kept - p.room
                if p.units > 0 and missing > _ROUND:
                    wait, never = max(wait, p.wait(missing)), never or p.units > p.burst
            for p in plans:
                if peek or wait > 0:
                    p.units = 0
                elif p.units > 0:
                    p.charge(p.units, id, hold)
            remaining = math.floor(max(0.0, min([float(_COUNTER)] + [p.room - p.units for p in plans])) + _ROUND)
            reset = _milliseconds(max([0.0] + [p.reset(p.units) for p in plans]))
            retry = 0 if wait == 0 else -1 if never else _milliseconds(wait)
            granted = 0 if peek or wait > 0 else units
            return Decision([int(wait == 0), remaining, retry, reset, granted, 0, 0, "client_local", 0, 0, 0])

    def release(self, id: str) -> None:
        """End the slots of a hold that was granted here."""
        with self._lock:
            for key, holders in list(self._holders.items()):
                if holders.pop(id, None) is not None and not holders:
                    del self._holders[key]

    def renew(self, id: str, seconds: float) -> None:
        """Extend them."""
        with self._lock:
            for holders in self._holders.values():
                if id in holders:
                    holders[id] = self._clock() + seconds


def _milliseconds(seconds: float) -> int:
    return math.ceil(seconds * 1000 - _ROUND)
