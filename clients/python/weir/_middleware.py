from __future__ import annotations

from typing import List, Tuple

from ._decision import Decision

TEXT = b"Too many requests.\n"


def response_headers(d: Decision) -> List[Tuple[str, str]]:
    """The headers of a 429."""
    return [("Content-Type", "text/plain; charset=utf-8"), ("Content-Length", str(len(TEXT))), *d.headers.items()]
