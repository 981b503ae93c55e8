from __future__ import annotations

import logging
import os
import ssl
import threading
import time
from typing import Any, List, Mapping, Optional, Sequence, Union
from urllib.parse import unquote, urlsplit

from ._decision import Decision
from ._errors import Forbidden, NotCharged, Unavailable, WeirError
from ._local import Local
from ._wire import Charge, command, encode, whole

log = logging.getLogger("weir")

_PAUSE = 0.5  # seconds without an attempt after a failure
OUTAGES = ("local", "open", "closed", "raise")


class Base:
    """What both clients have: the address, commands, and the policy for an outage."""

    def __init__(
        self, url: Optional[str] = None, *, token: Optional[str] = None, timeout: float = 0.25, prefix: str = "",
        outage: str = "local", share: float = 0.5, ssl_context: Optional[ssl.SSLContext] = None,
    ) -> None:
        """
        :param url: ``weir://[CALLER:TOKEN@]HOST:PORT[/DOMAIN]``, ``weirs://`` for TLS, or
            ``weir+unix://[CALLER:TOKEN@]/PATH``; default WEIR_URL, then weir://127.0.0.1:6380
        :param token: the token, if it is not in the URL
        :param timeout: seconds that a call may take, connecting included
        :param prefix: goes before each key
        :param outage: who decides takes and peeks while the server cannot be reached: ``local`` (this process, by ``share`` of each
            limit), ``open`` (all are granted), ``closed`` (all are refused) or ``raise`` (:class:`Unavailable`)
        :param share: the part of each limit that this process grants in an outage, above 0 and at most 1
        :param ssl_context: for weirs://; default the system's certificates
        """
        text = url or os.environ.get("WEIR_URL") or "weir://127.0.0.1:6380"
        parts = urlsplit(text)
        unix = parts.scheme == "weir+unix"
        if not (unix and len(parts.path) > 1) and not (parts.scheme in ("weir", "weirs") and parts.hostname):
            raise ValueError(f"url is {_without_token(text)!r}: want weir://HOST:PORT, weirs:// for TLS or weir+unix:///PATH")
        if outage not in OUTAGES:
            raise ValueError(f"outage is {outage!r}: want {', '.join(OUTAGES)}")
        if not 0 < share <= 1:
            raise ValueError(f"share is {share!r}: want above 0 and at most 1")
        if not timeout > 0:
            raise ValueError(f"timeout is {timeout!r}: want seconds above 0")
        self.path = unquote(parts.path) if unix else ""
        self.host, self.port = parts.hostname or "", parts.port or 6380
        self.address = self.path or f"{self.host}:{self.port}"
        self.domain = "" if unix else unquote(parts.path[1:])
        self.timeout, self.prefix, self.outage = timeout, prefix, outage
        token = token or (unquote(parts.password) if parts.password else None)
        user = unquote(parts.username) if parts.username else None
        # Its answer says that this is Weir and that it has room, before a command leaves.
        self._greeting = encode(["PING"] if not token else ["AUTH", user, token] if user else ["AUTH", token])
        self._ssl = (ssl_context or ssl.create_default_context()) if parts.scheme == "weirs" else None
        self._local, self._retry_at, self._logged_at = Local(share), 0.0, -60.0

    def _command(
        self, verb: str, charges: Sequence[Charge], cost: Optional[int] = None, id: Optional[str] = None,
        hold: Optional[float] = None, up_to: Optional[int] = None, book: Optional[float] = None, keep: Optional[int] = None,
    ) -> bytes:
        if self.prefix:
            charges = [((self.prefix.encode() if isinstance(k, bytes) else self.prefix) + k, *rest) for k, *rest in charges]
        options: List[Any] = []
        if id is not None:
            options += ("ID", id)
        if hold is not None:
            options += ("HOLD", int(hold * 1000))
        if up_to is not None:
            options += ("UPTO", whole(up_to, "up_to"))
        if book is not None:
            options += ("WAIT", int(book * 1000))
        if self.domain:
            options += ("IN", self.domain)
        return command(verb, charges, cost, options, keep)

    def _paused(self) -> bool:
        return self.outage != "raise" and time.monotonic() < self._retry_at

    def _failed(self, why: BaseException, answered: bool = False) -> None:
        """Note that the server reached no decision, or refused the credentials. One that answered and forbids a command may
        allow the next."""
        now = time.monotonic()
        if not (answered and isinstance(why, Forbidden)):
            self._retry_at = now + _PAUSE
        if now - self._logged_at >= 60:
            self._logged_at = now
            log.warning("no decision from %s: %s; until it answers: outage=%r", self.address, why, self.outage)

    def _without(self, verb: str, charges: Sequence[Charge], cost: int, id: Optional[str], why: BaseException, options: Mapping[str, Any]) -> Decision:
        """Decide a take or a peek without the server, by policy."""
        peek = verb == "WEIR.PEEK"
        if not peek and verb != "WEIR.TAKE" or self.outage == "raise":
            if isinstance(why, WeirError):
                raise why
            raise Unavailable(f"no decision: {why or type(why).__name__}") from why
        if self.outage == "local":
            return self._local.take(charges, cost, id or "", peek, options.get("keep") or 0, options.get("up_to"), options.get("hold"))
        granted = self.outage == "open"
        cost = options.get("up_to") or cost
        return Decision([int(granted), 0, 0 if granted else 1000, 0, cost if granted and not peek else 0, 0, 0, f"client_{self.outage}", 0, 0, 0])


def is_outage(error: BaseException) -> bool:
    """Report whether an answer stands for an outage: no decision, or credentials that are refused."""
    return isinstance(error, (Unavailable, Forbidden))


def greeting_error(answer: BaseException) -> BaseException:
    """Return what an error in place of a greeting means: nothing was charged."""
    return answer if isinstance(answer, Forbidden) else NotCharged(str(answer))


class Paused(Unavailable):
    """The server could not be reached a moment ago."""


def _without_token(url: str) -> str:
    scheme, mark, rest = url.partition("://")
    return scheme + mark + rest.rpartition("@")[2]
