"""Half surrogate pairs in JSON, which clients make of text that was cut in the middle of a character."""

from __future__ import annotations

import logging
import re
from typing import Final

_log = logging.getLogger(__name__)

_ESCAPES: Final = re.compile(
    rb"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|\\[^u]|(\\u[dD][89a-fA-F][0-9a-fA-F]{2})"
)
"""Whole pairs and other escapes, which are passed over, or half a pair."""
_REPLACEMENT: Final = rb"\ufffd"


def mended(body: bytes) -> bytes | None:
    """``body`` with U+FFFD for each half of a surrogate pair (RFC 8259, 8.2); ``None`` if it has none."""
    count = 0

    def replaced(escape: re.Match[bytes]) -> bytes:
        nonlocal count
        if escape[1] is None:
            return escape[0]
        count += 1
        return _REPLACEMENT

    whole = _ESCAPES.sub(replaced, body)
    if not count:
        return None
    _log.warning("A request has half a surrogate pair in %d places: they become U+FFFD", count)
    return whole
