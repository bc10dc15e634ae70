"""Events in the usual spelling, which nearly all of a stream have: one line of data, perhaps after one with a name."""

from __future__ import annotations

from typing import Final

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
