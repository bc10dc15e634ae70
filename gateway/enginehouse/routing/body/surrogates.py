"""Half surrogate pairs in JSON, which clients make of text that was cut in the middle of a character."""

from __future__ import annotations

import logging
import re
from typing import Final

_log = logging.getLogger(__name__)

_HALF: Final = re.compile(rb"\\u[dD][89a-fA-F][0-9a-fA-F]{2}")
_HIGH: Final = b"89abAB"
_REPLACEMENT: Final = rb"\ufffd"
_LARGEST: Final = 8 << 20
_MOST: Final = 20_000
"""Bytes of a body, and escapes in it, that are looked at: that takes about 20 ms."""


def mended(body: bytes) -> bytes | None:
    """``body`` with U+FFFD for each half of a surrogate pair (RFC 8259, 8.2); ``None`` if it has none, or too many."""
    if len(body) > _LARGEST or (b"\\ud" not in body and b"\\uD" not in body):
        return None
    pieces: list[bytes] = []
    count = end = 0
    high: bytes | None = None  # the first half of a pair, if it is the last thing that was read
    for number, found in enumerate(_HALF.finditer(body)):
        if number == _MOST:
            return None
        between = body[end : found.start()]
        is_escape = (len(between) - len(between.rstrip(b"\\"))) % 2 == 0
        escape = found[0]
        if high is not None:
            whole = not between and is_escape and escape[3] not in _HIGH
            pieces.append(high + escape if whole else _REPLACEMENT)
            count += not whole
            high = None
            if whole:
                end = found.end()
                continue
        pieces.append(between)
        if not is_escape:
            pieces.append(escape)
        elif escape[3] in _HIGH:
            high = escape
        else:
            pieces.append(_REPLACEMENT)
            count += 1
        end = found.end()
    if high is not None:
        pieces.append(_REPLACEMENT)
        count += 1
    if not count:
        return None
    _log.warning("A request has half a surrogate pair in %d places: they become U+FFFD", count)
    return b"".join([*pieces, body[end:]])
