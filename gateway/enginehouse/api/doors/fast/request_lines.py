"""Checks the request lines of a connection as they stand on the wire."""

from __future__ import annotations

from enginehouse.domain.errors import InvalidRequest


class RequestLines:
    """Holds what was received since the last complete head, and where the last request line ended in it."""

    __slots__ = ("_end", "_pieces")

    def __init__(self) -> None:
        self._pieces: list[bytes] = []
        self._end = 0

    def add(self, data: bytes) -> None:
        """``data`` was received."""
        self._pieces.append(data)

    def check(self, method: bytes, target: bytes) -> None:
        """Refuse extra spaces, which the parser skips: another server may split such a line elsewhere (RFC 9112, 3)."""
        line = b"%s %s HTTP/" % (method, target)
        if self._end or not self._pieces[0].startswith(line):
            at = b"".join(self._pieces).find(line, self._end)
            if at < 0:
                raise InvalidRequest("The request line needs exactly one space on each side of its target")
            self._end = at
        self._end += len(line)

    def read_again(self) -> None:
        """The parser gets the last request once more."""
        self._end = 0

    def clear(self) -> None:
        """The head is complete."""
        self._pieces.clear()
        self._end = 0
