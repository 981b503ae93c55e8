from __future__ import annotations

from typing import Any, Dict, List, NamedTuple, Sequence

#: ``retry_after`` of a cost that never fits.
NEVER = 2147483647


class LimitState(NamedTuple):
    """What one of several limits says. Durations are in milliseconds; ``retry_after_ms`` is -1 for never."""

    allowed: bool
    remaining: int
    retry_after_ms: int
    reset_after_ms: int
    granted: int


class Decision:
    """The answer to a command. It is true if the units were granted.

    Numbers are those of the strictest limit; ``limits`` has each limit's, in the order of the call.
    """

    __slots__ = ("allowed", "remaining", "retry_after_ms", "reset_after_ms", "granted", "delay_ms", "index", "source", "count", "period_ms", "burst", "limits")

    allowed: bool  #: whether all units were granted
    remaining: int  #: the units that are left
    retry_after_ms: int  #: when the same units fit; -1: never; 0: they did
    reset_after_ms: int  #: when nothing is used any more
    granted: int  #: the granted units
    delay_ms: int  #: how long to wait before the work, if a turn was booked
    index: int  #: the place of the strictest limit in the call
    source: str  #: who decided: ``store``, ``fallback``, …, or ``client_local``, ``client_open``, ``client_closed``
    count: int  #: the limit that decided: the operator's, where a rules file has one
    period_ms: int
    burst: int
    limits: List[LimitState]

    def __init__(self, reply: Sequence[Any]) -> None:
        (granted, self.remaining, self.retry_after_ms, self.reset_after_ms, self.granted, self.delay_ms, self.index, self.source,
         self.count, self.period_ms, self.burst) = reply[:11]
        self.allowed = granted == 1
        if len(reply) > 11:
            self.limits = [LimitState(reply[i] == 1, *reply[i + 1:i + 5]) for i in range(11, len(reply), 5)]
        else:
            self.limits = [LimitState(self.allowed, self.remaining, self.retry_after_ms, self.reset_after_ms, self.granted)]

    def __bool__(self) -> bool:
        return self.allowed

    @property
    def never(self) -> bool:
        """Whether the cost never fits, because it is above the limit's burst."""
        return self.retry_after_ms < 0

    @property
    def retry_after(self) -> int:
        """``retry_after_ms`` in whole seconds, rounded up, as the header Retry-After has it; NEVER for never."""
        return NEVER if self.never else -(-self.retry_after_ms // 1000)

    @property
    def headers(self) -> Dict[str, str]:
        """The headers RateLimit-Policy and RateLimit (draft-ietf-httpapi-ratelimit-headers-10), and Retry-After if it was
        refused. A decision without a server knows no limit to show."""
        found = {}
        if self.period_ms > 0:
            found["RateLimit-Policy"] = f'"default";q={self.count};w={-(-self.period_ms // 1000)}'
            found["RateLimit"] = f'"default";r={self.remaining};t={-(-self.reset_after_ms // 1000)}'
        if not self.allowed and not self.never:
            found["Retry-After"] = str(self.retry_after)
        return found

    def __repr__(self) -> str:
        outcome = "granted" if self.allowed else "refused"
        return f"<Decision {outcome} by {self.source}: {self.remaining} of {self.burst} remain, retry after {self.retry_after_ms} ms>"
