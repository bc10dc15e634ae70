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


_SMALL: Final = 1024
_LINES: Final = tuple(b"%x\r\n" % size for size in range(_SMALL))
_LINE_OF_WHOLE: Final = {len(line) + size + 2: line for size, line in enumerate(_LINES) if size}
"""The first line of a chunk, by the length of the whole chunk."""
_SIZES: Final = {line[:-2]: size for size, line in enumerate(_LINES) if size}
_LONGEST_SIZE: Final = 3


def framed(content: bytes) -> bytes:
    """``content``, which is not empty, as one chunk."""
    size = len(content)
    line = _LINES[size] if size < _SMALL else b"%x\r\n" % size
    return line + content + b"\r\n"


def content_of(data: bytes) -> bytes:
    """The content of ``data`` if that is exactly one small chunk in the usual spelling; empty for all other data.

    Leave such data to the parser: it may be several chunks, a large one, the last one, or one with extensions.
    """
    line = _LINE_OF_WHOLE.get(len(data))
    if line is None or data[: len(line)] != line or data[-2] != 13 or data[-1] != 10:
        return b""
    return data[len(line) : -2]


def whole_chunks(data: bytes) -> tuple[bytes, int]:
    """The content of the small chunks in the usual spelling with which ``data`` begins, and where they end in it.

    Leave what follows to the parser.
    """
    pieces, at = [], 0
    while (line := data.find(b"\r\n", at, at + _LONGEST_SIZE + 2)) > 0:
        size = _SIZES.get(data[at:line], 0)
        end = line + 2 + size
        if not size or data[end : end + 2] != b"\r\n":
            break
        pieces.append(data[line + 2 : end])
        at = end + 2
    return b"".join(pieces), at


_LF: Final = 10
_CR: Final = 13
"""A search for a number makes no exception, as one for bytes does within Python, and ``in`` is no call of a method."""


def data_of(event: bytes) -> bytes:
    """The data of a whole ``event`` that has one line of it, and nothing else. Raises ``ValueError`` for any other."""
    end = len(event) - 2
    if end < 5 or event[end] != _LF or event[end + 1] != _LF or not event.startswith(b"data:"):
        return _data_of_other(event)
    data = event[5:end]
    if _LF in data or _CR in data:
        return _data_of_other(event)
    if not data.isascii():
        data.decode()  # JSON decoders do not look into the texts that they pass over
    return data


def data_of_typed(event: bytes) -> bytes:
    """As ``data_of``, of an ``event`` that begins with its name, unless that is ``error``."""
    at = event.find(_LF)
    name = event[:at].removesuffix(b"\r") if at > 0 else b""
    if name[:6] != b"event:" or name[-5:] == b"error" or _CR in name or not name.isascii():
        raise ValueError
    return data_of(event[at + 1 :])


def _data_of_other(event: bytes) -> bytes:
    """As ``data_of``, with any ends of the lines."""
    line, blank = event.splitlines()
    if blank or line[:5] != b"data:":
        raise ValueError
    line.decode()
    return line[5:]


def is_utf8(text: bytes) -> bool:
    """Whether clients can decode ``text``."""
    try:
        text.decode()
    except UnicodeDecodeError:
        return False
    return True
