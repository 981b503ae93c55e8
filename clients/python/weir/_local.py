"""Decisions in an outage: this process enforces a share of each limit by itself."""

from __future__ import annotations

import re
import threading
import time
from typing import Any, Dict, List, Optional, Sequence, Tuple

from ._decision import Decision
from ._wire import Charge

_MOST = 10000  # keys that are remembered
_SECONDS = {
    **dict.fromkeys(("s", "sec", "second"), 1.0), **dict.fromkeys(("m", "min", "minute"), 60.0),
    **dict.fromkeys(("h", "hr", "hour"), 3600.0), **dict.fromkeys(("d", "day"), 86400.0),
    **dict.fromkeys(("w", "week"), 604800.0), "month": 2592000.0, "year": 31536000.0,
}
_PARTS = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}
_COUNTER = 4294967295


class Limit:
    """The parts of a limit's text that a local decision needs."""

    __slots__ = ("count", "period", "burst", "slots")

    def __init__(self, text: str) -> None:
        numbers, _, rest = text.partition("/")
        words = rest.split()
        numbers = numbers.rpartition("=")[2]
        self.count = _COUNTER if numbers == "counter" else int(numbers)
        self.period = _period(words[0])
        self.burst = int(words[words.index("burst") + 1]) if "burst" in words else self.count
        self.slots = "concurrency" in words


def _period(word: str) -> float:
    if word in _SECONDS:
        return _SECONDS[word]
    parts = re.findall(r"([0-9.]+)(ms|us|ns|h|m|s)", word)
    if not parts or "".join(n + u for n, u in parts) != word:
        raise ValueError(word)
    return sum(float(n) * _PARTS[u] for n, u in parts)


class Local:
    """Enforces a share of each limit by GCRA, slots by counting their holders. Safe for threads."""

    def __init__(self, share: float) -> None:
        self._share, self._lock = share, threading.Lock()
        self._due: Dict[Tuple[Any, str], float] = {}  # when nothing is used any more
        self._holders: Dict[Tuple[Any, str], Dict[str, float]] = {}  # ends of leases, by ID
        self._limits: Dict[str, Optional[Limit]] = {}

    def _limit(self, text: str) -> Optional[Limit]:
        if text not in self._limits:
            if len(self._limits) >= 1000:
                self._limits.clear()
            try:
                self._limits[text] = Limit(text)
            except (ValueError, IndexError):
                self._limits[text] = None
        return self._limits[text]

    def take(self, charges: Sequence[Charge], cost: int, id: Optional[str] = None, peek: bool = False) -> Decision:
        """Decide all or none; a peek charges nothing. A limit in a form that only the server reads is not enforced."""
        now, wait, remaining = time.monotonic(), 0.0, _COUNTER
        due: Dict[Tuple[Any, str], float] = {}
        held: List[Tuple[Tuple[Any, str], Dict[str, float], float]] = []
        with self._lock:
            for key, text, *own in charges:
                limit, units = self._limit(text), own[0] if own else cost
                if limit is None:
                    continue
                count = max(1.0, limit.count * self._share)
                if limit.slots:
                    holders = {h: end for h, end in self._holders.get((key, text), {}).items() if end > now}
                    left = int(count) - len(holders)
                    if left < units:
                        wait = max(wait, 1.0)
                    held.append(((key, text), holders, now + limit.period))
                else:
                    each = limit.period / count
                    used_until = max(self._due.get((key, text), now), now)
                    room = now + each * max(1.0, limit.burst * self._share) - used_until
                    left = int(room / each + 1e-9)
                    if units * each > room + 1e-9:
                        wait = max(wait, units * each - room)
                    due[(key, text)] = used_until + units * each
                remaining = min(remaining, left if peek else left - units)
            if peek or wait > 0:
                retry = int(wait * 1000) + 1 if wait > 0 else 0
                return Decision([int(wait == 0), max(0, remaining) if peek else 0, retry, 0, 0, 0, 0, "client_local", 0, 0, 0])
            self._due.update(due)
            self._forget(now)
            for slots, holders, end in held:
                self._holders[slots] = {**holders, id or "": end}
        return Decision([1, max(0, remaining), 0, 0, cost, 0, 0, "client_local", 0, 0, 0])

    def release(self, id: str) -> None:
        """End the slots of a hold that was granted here."""
        with self._lock:
            for holders in self._holders.values():
                holders.pop(id, None)

    def _forget(self, now: float) -> None:
        if len(self._due) <= _MOST and len(self._holders) <= _MOST:
            return
        self._due = {k: at for k, at in self._due.items() if at > now}
        self._holders = {k: h for k, h in self._holders.items() if h}
        while len(self._due) > _MOST:
            del self._due[next(iter(self._due))]
        while len(self._holders) > _MOST:
            del self._holders[next(iter(self._holders))]
