"""Commands and replies as bytes: the Redis protocol, version 2."""

from __future__ import annotations

from typing import Any, Iterable, List, Mapping, Optional, Sequence, Tuple, Union

from ._errors import Unavailable, WeirError, error_of

Charge = Tuple[Any, ...]  # key, limit and, if it has one of its own, the cost
Keys = Union[str, bytes, Mapping[str, str], Iterable[Charge]]


def encode(args: Sequence[Any]) -> bytes:
    out = [b"*%d\r\n" % len(args)]
    for a in args:
        if not isinstance(a, bytes):
            a = str(a).encode()
        out.append(b"$%d\r\n%b\r\n" % (len(a), a))
    return b"".join(out)


def whole(value: Any, name: str) -> int:
    """Return a number of units or milliseconds; a part of one is a mistake."""
    if isinstance(value, bool) or value != int(value):
        raise WeirError(f"{name} is {value!r}: want a whole number")
    return int(value)


def charges_of(key: Keys, limits: Sequence[str]) -> List[Charge]:
    """Return the charges of a call: of a key and limits, of {key: limit}, or of [(key, limit[, cost])]."""
    if isinstance(key, (str, bytes)):
        charges: List[Charge] = [(key, limit) for limit in limits]
    else:
        if limits:
            raise WeirError(f"limits are {limits!r}: want none beside several keys")
        charges = list(key.items()) if isinstance(key, Mapping) else [tuple(c) for c in key]
    if not charges:
        raise WeirError('limits are none: want at least one, such as "100/min"')
    return charges


_WITHOUT_COSTS = ("WEIR.RESET", "WEIR.RELEASE", "WEIR.RENEW")


def settled(charges: Sequence[Charge], used: Union[int, Sequence[int]]) -> List[Charge]:
    """Return the charges with what was used: one number for all, or one for each."""
    if isinstance(used, int):
        return [(key, limit, used) for key, limit, *_ in charges]
    if len(used) != len(charges):
        raise WeirError(f"used is {used!r}: want a number, or {len(charges)} of them")
    return [(key, limit, units) for (key, limit, *_), units in zip(charges, used)]


def command(verb: str, charges: Sequence[Charge], cost: Optional[int], options: Sequence[Any], keep: Optional[int] = None) -> bytes:
    args: List[Any] = [verb]
    for i, (key, limit, *own) in enumerate(charges):
        if i:
            args.append("AND")
        args += (key, limit)
        units = None if verb in _WITHOUT_COSTS else own[0] if own else cost
        if units is not None and not (units == 1 and verb == "WEIR.TAKE"):
            args += ("COST", whole(units, "cost"))
        if keep is not None:
            args += ("KEEP", whole(keep, "keep"))
    args += options
    return encode(args)


class Parser:
    """Splits what a connection sends into replies."""

    def __init__(self) -> None:
        self._buffer = b""

    def feed(self, data: bytes) -> List[Any]:
        """Return the replies that are complete with data. An error of the server is a value."""
        buffer = self._buffer + data if self._buffer else data
        found, position = [], 0
        while position < len(buffer):
            got = _parse(buffer, position)
            if got is None:
                break
            value, position = got
            found.append(value)
        self._buffer = buffer[position:]
        return found


def _parse(buffer: bytes, position: int) -> Optional[Tuple[Any, int]]:
    end = buffer.find(b"\r\n", position)
    if end < 0:
        return None
    kind, line, position = buffer[position], buffer[position + 1:end], end + 2
    if kind == 0x3A:  # :
        return int(line), position
    if kind == 0x2B:  # +
        return line.decode(), position
    if kind == 0x2D:  # -
        return error_of(line.decode(errors="replace")), position
    if kind == 0x2A:  # *
        found = []
        for _ in range(int(line)):
            got = _parse(buffer, position)
            if got is None:
                return None
            found.append(got[0])
            position = got[1]
        return found, position
    raise Unavailable(f"{buffer[end - len(line) - 1:end + 2][:40]!r} is no reply of Weir: want its RESP listener")
