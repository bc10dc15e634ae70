"""Splits, reads and writes server-sent events (HTML Living Standard, 9.2)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final, NamedTuple

LARGEST_HELD: Final = 1 << 20
"""An event of more bytes passes in pieces."""
_PAIRS: Final[tuple[bytes, ...]] = (b"\n\n", b"\n\r", b"\r\r")
"""Every blank line contains one of these, whichever mix of CR, LF and CRLF ends the lines."""
_ENDS: Final[tuple[bytes, ...]] = (b"\n\n", b"\n\r\n", b"\r\r", b"\n\r", b"\r\r\n")
"""The ends of a whole event."""
_BLANK: Final = re.compile(rb"(?:\n\n|\n\r\n?|\r\r\n?)")
_OTHER_FIELDS: Final[tuple[bytes, ...]] = (b"", b"id", b"retry")
"""Clients use neither of them, and the empty name is that of comments."""
_LINE_END: Final = re.compile(rb"\r\n|\n|\r")


class ServerSentEvent(NamedTuple):
    """An event that ends at ``end`` in its piece of a stream. ``data`` is ``None`` if clients ignore it.

    ``is_known``: every line has one of the standard's fields, or is a comment.
    """

    end: int
    name: str
    data: bytes | None
    is_known: bool


def is_whole(data: bytes) -> bool:
    """Whether ``data`` ends with a whole event."""
    return (len(data) > 1 and data[-1] == 10 and data[-2] == 10) or data.endswith(_ENDS)


def whole_events(data: bytes) -> tuple[bytes, bytes]:
    """Split ``data`` after its last complete event.

    The rest is held until its end arrives, so that a broken stream can be continued or ended with an error event. Of an
    event that is too large to be held, only the line end is: it may be half of a blank line.
    """
    if is_whole(data):
        return data, b""
    cut = max(data.rfind(pair) + 2 if pair in data else 0 for pair in _PAIRS)
    if cut and data[cut - 1 : cut + 1] == b"\r\n":
        cut += 1
    if len(data) - cut > LARGEST_HELD:
        cut = len(data.rstrip(b"\r\n"))
    return data[:cut], data[cut:]


def end_behind(events: bytes, place: int) -> int:
    """The end of the first event of whole ``events`` that ends at ``place`` or behind it."""
    found = _BLANK.search(events, max(0, place - 3))
    return len(events) if found is None else found.end()


def read_events(piece: bytes) -> Iterator[ServerSentEvent]:
    """The events of ``piece``. The last one may lack its blank line."""
    start = 0
    for blank in _BLANK.finditer(piece):
        yield _event(piece[start : blank.end()], blank.end())
        start = blank.end()
    if start < len(piece):
        yield _event(piece[start:], len(piece))


def comment(text: bytes) -> bytes:
    """A comment of one line or several; clients do not pass it to their users."""
    return b"".join(b": %s\n" % line for line in text.splitlines()) + b"\n"


def _event(text: bytes, end: int) -> ServerSentEvent:
    name, data, is_known = b"", [], True
    for line in _LINE_END.split(text):
        field, _, value = line.partition(b":")
        if field == b"data":
            data.append(value.removeprefix(b" "))
        elif field == b"event":
            name = value.removeprefix(b" ")
        elif field not in _OTHER_FIELDS:
            is_known = False
    return ServerSentEvent(end, name.decode(errors="replace"), b"\n".join(data) or None, is_known)
