"""Heads that repeat on a connection, and are parsed only once."""

from __future__ import annotations

from typing import Final, Generic, NamedTuple, TypeVar

_LENGTH_NAMES: Final[tuple[bytes, ...]] = (b"\r\nContent-Length: ", b"\r\ncontent-length: ")
_MOST_MISSES: Final = 8
"""After so many unique heads in a row, the next ``_PAUSE`` heads are not looked at."""
_PAUSE: Final = 62

Meaning = TypeVar("Meaning")


class _Head(NamedTuple):
    """A head, split before and after the digits of its Content-Length."""

    before: bytes
    after: bytes


class KnownHead(Generic[Meaning]):
    """Learns a head and its meaning when it comes for the second time in a row.

    A head is known if every byte but the digits of its Content-Length is equal, and the body arrived with it, whole and
    with nothing behind it. So the results of the parser and the checks still hold. If heads are unique, only few of
    them are compared.
    """

    __slots__ = ("_expected", "_learned", "_meaning", "_misses", "_pause", "_seen", "_size")

    def __init__(self) -> None:
        self._misses = self._pause = 0
        self._seen: _Head | None = None
        self._learned: _Head | None = None
        self._meaning: Meaning
        self._size = -1
        self._expected = b""

    def read(self, data: bytes) -> tuple[Meaning, bytes] | None:
        """The meaning of the head of ``data``, and the body; ``None`` unless the head is known."""
        size = len(data)
        expected = self._expected if size == self._size else self.expected(size)  # most clients' requests are alike
        length = len(expected)
        if not length or data[:length] != expected:
            return None
        return self._meaning, data[length:]

    def expected(self, size: int) -> bytes:
        """The known head of a message of so many bytes; empty if there is none."""
        if size != self._size:
            self._size, self._expected = size, self._head_of(size)
        return self._expected

    def _head_of(self, size: int) -> bytes:
        if self._learned is None:
            return b""
        before, after = self._learned
        digits_and_body = size - len(before) - len(after)
        count = len(b"%d" % digits_and_body)
        digits = b"%d" % (digits_and_body - count)
        if len(digits) < count:
            digits = b"%d" % (digits_and_body - count + 1)  # the body is shorter than that power of ten
        fits = digits.isdigit() and int(digits) + len(digits) == digits_and_body
        return before + digits + after if fits else b""

    def see(self, data: bytes) -> bool:
        """Note that ``data`` was one whole message; whether its head came again, so that its meaning may be learned."""
        if self._pause:
            self._pause -= 1
            return False
        head = _sized_head(data)
        again = head is not None and head == self._seen
        self._seen = head
        self._know(None)
        if again:
            self._misses = 0
        else:
            self._missed()
        return again

    def _missed(self) -> None:
        self._misses += 1
        if self._misses == _MOST_MISSES:
            self._misses -= 2  # two heads suffice after the pause
            self._pause = _PAUSE
            self._seen = None

    def learn(self, meaning: Meaning) -> None:
        """The head seen last means ``meaning``."""
        self._meaning = meaning
        self._know(self._seen)

    def _know(self, head: _Head | None) -> None:
        self._learned = head
        self._size, self._expected = -1, b""


def _sized_head(data: bytes) -> _Head | None:
    """The head of ``data`` if a Content-Length frames all that follows."""
    end = data.find(b"\r\n\r\n") + 4
    for name in _LENGTH_NAMES:
        at = data.find(name, 0, end)
        if at >= 0:
            start = at + len(name)
            stop = data.find(b"\r", start)
            digits = data[start:stop]
            framed = digits.isdigit() and int(digits) == len(data) - end
            return _Head(data[:start], data[stop:end]) if framed else None
    return None
