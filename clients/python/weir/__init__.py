"""Client of Weir, a rate limiter for services of many hosts.

A program states a limit beside the work that it bounds; the server keeps the count for all
processes and hosts::

    from weir import Weir
    weir = Weir()                              # WEIR_URL, or weir://127.0.0.1:6380
    d = weir.take("user:42", "10/s", "1000/day")
    if not d:
        return 429, d.headers
"""

from ._async import AsyncHold, AsyncWeir
from ._decision import NEVER, Decision, LimitState
from ._errors import Ambiguous, Forbidden, IDReused, NotCharged, Refused, Settled, Unavailable, UnknownID, WeirError
from ._sync import Hold, Weir

__all__ = [
    "NEVER", "Ambiguous", "AsyncHold", "AsyncWeir", "Decision", "Forbidden", "Hold", "IDReused", "LimitState",
    "NotCharged", "Refused", "Settled", "Unavailable", "UnknownID", "Weir", "WeirError",
]
