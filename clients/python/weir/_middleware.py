from __future__ import annotations

from typing import Dict, List, Tuple

from ._decision import Decision

TEXT = b"Too many requests.\n"


def response_headers(d: Decision) -> List[Tuple[str, str]]:
    """The headers of a 429."""
    return [("Content-Type", "text/plain; charset=utf-8"), ("Content-Length", str(len(TEXT))), *rate_headers(d)]


def rate_headers(d: Decision) -> List[Tuple[str, str]]:
    """The headers of every answer. A decision without a server knows no count to show."""
    headers: Dict[str, str] = d.headers
    if d.count == 0:
        headers = {k: v for k, v in headers.items() if k == "Retry-After"}
    return list(headers.items())
