"""The header ``Date`` of answers."""

from __future__ import annotations

from collections.abc import Callable
from email.utils import formatdate


class DateLine:
    """Makes the line of the header ``Date`` (RFC 9110, 6.6.1) once a second. ``epoch``: the time in seconds."""

    __slots__ = ("_epoch", "_line", "_second")

    def __init__(self, epoch: Callable[[], float]) -> None:
        self._epoch = epoch
        self._second = -1
        self._line = b""

    def now(self) -> bytes:
        """The line for this second, ending in CRLF."""
        second = int(self._epoch())
        if second != self._second:
            self._second = second
            self._line = b"date: %s\r\n" % formatdate(second, usegmt=True).encode()
        return self._line
