from __future__ import annotations

from typing import Any


class WeirError(Exception):
    """A mistake of the program: the server refused the command, and nothing was charged."""


class Forbidden(WeirError):
    """The credentials are wrong, or do not allow the command in this domain."""


class UnknownID(WeirError):
    """No granted take with the ID is remembered."""


class IDReused(WeirError):
    """The ID belongs to a take of other keys or limits."""


class Settled(WeirError):
    """The take with the ID was settled, refunded or released before."""


class Unavailable(WeirError):
    """No decision was reached."""


class NotCharged(Unavailable):
    """No decision was reached and nothing was charged: a repeat is safe."""


class Ambiguous(Unavailable):
    """No decision is known: the charge may have been made. A repeat is safe with an ID."""


class Refused(Exception):
    """What was asked for does not fit. ``decision`` says when it will."""

    def __init__(self, decision: Any) -> None:
        super().__init__("refused: it never fits" if decision.never else f"refused: retry after {decision.retry_after_ms} ms")
        self.decision = decision


# The first word of an error is its class. Its text may change.
CLASSES = {
    "NOPERM": Forbidden, "NOAUTH": Forbidden, "WRONGPASS": Forbidden,
    "UNKNOWNID": UnknownID, "IDREUSED": IDReused, "SETTLED": Settled,
    "NOTCHARGED": NotCharged, "AMBIGUOUS": Ambiguous,
}


def error_of(line: str) -> WeirError:
    """Return the error that a line of the server stands for."""
    word, _, text = line.partition(" ")
    kind = CLASSES.get(word)
    if kind is None:
        return WeirError(text if word == "ERR" else line)
    return kind(text)
