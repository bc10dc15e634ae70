"""Splits, reads and writes server-sent events (HTML Living Standard, 9.2)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

_LARGEST_HELD = 1 << 20
_PAIRS = (b"\n\n", b"\n\r", b"\r\r")
"""Every blank line contains one of these, whichever mix of CR, LF and CRLF ends the lines."""
ENDS = (b"\n\n", b"\n\r\n", b"\r\r", b"\n\r", b"\r\r\n")
"""The ends of a whole event."""
_BLANK = re.compile(rb"(?:\n\n|\n\r\n?|\r\r\n?)")
_LINE_END = re.compile(rb"\r\n|\n|\r")


class Event(NamedTuple):
    """An event that ends at ``end`` in its piece of a stream. ``data`` is ``None`` for a comment."""

    end: int
    data: bytes | None


def whole_events(data: bytes) -> tuple[bytes, bytes]:
    """Split ``data`` after its last complete event.

    The rest is held until its end arrives, so that a broken stream can be continued or ended with an error event. An
    event of more than 1 MiB passes in pieces.
    """
    if data.endswith(ENDS):
        return data, b""
    cut = max(data.rfind(pair) + 2 if pair in data else 0 for pair in _PAIRS)
    if cut and data[cut - 1 : cut + 1] == b"\r\n":
        cut += 1
    if len(data) - cut > _LARGEST_HELD:
        return data, b""
    return data[:cut], data[cut:]


def read_events(piece: bytes) -> Iterator[Event]:
    """The events of ``piece``. The last one may lack its blank line."""
    start = 0
    for blank in _BLANK.finditer(piece):
        yield Event(blank.end(), _data(piece[start : blank.end()]))
        start = blank.end()
    if start < len(piece):
        yield Event(len(piece), _data(piece[start:]))


def comment(text: bytes) -> bytes:
    """A comment of one line or several; clients do not pass it to their users."""
    return b"".join(b": %s\n" % line for line in text.splitlines()) + b"\n"


def _data(event: bytes) -> bytes | None:
    lines = [
        line[6:] if line.startswith(b"data: ") else line[5:]
        for line in _LINE_END.split(event)
        if line.startswith(b"data:")
    ]
    return b"\n".join(lines) if lines else None
