"""Heads that repeat on a connection, and are parsed only once."""

from __future__ import annotations

from typing import Final, Generic, TypeVar

_LENGTH: Final = b"content-length"
_LONGEST_VALUE: Final = 128
_LONGEST_HEAD: Final = 4096
_MOST_MISSES: Final = 8
"""After so many heads in a row that did not come again, the next ``_PAUSE`` ones are not learned."""
_PAUSE: Final = 62

Meaning = TypeVar("Meaning")


class KnownHead(Generic[Meaning]):
    """Knows a head that came in one piece with its body, what it means, and the later ones that are like it.

    Two heads are alike if only their lengths and the values of headers ``varying`` differ, and consist of letters,
    digits and dashes. These end no line, so the parser would find the same lines, and checks of their form would have
    the same results. What depends on more, such as keys and limits, must be checked each time.

    ``places``: the lines whose values may differ, counted from the first header. ``values``: theirs, in the head that
    was read last. ``_begin``: the bytes before the first of these values; empty if nothing is known. ``_parts``: for
    each, the usual size and the bytes up to the next one. ``_sized``: which of them is the length.
    """

    __slots__ = ("_begin", "_misses", "_parts", "_pause", "_sized", "_used", "_varying", "meaning", "places", "values")

    meaning: Meaning

    def __init__(self, *varying: bytes) -> None:
        self._varying = frozenset({_LENGTH, *varying})
        self._begin = b""
        self._parts: list[tuple[int, bytes]] = []
        self._sized = 0
        self.places: list[int] = []
        self.values: list[bytes] = []
        self._used = False
        self._misses = self._pause = 0

    def read(self, data: bytes) -> bytes | None:
        """The body of the message ``data``; ``None`` unless its head is known and its body whole."""
        begin = self._begin
        if not begin or not data.startswith(begin):
            return None
        at, values = len(begin), []
        for usual, behind in self._parts:
            end = at + usual
            if data[end : end + len(behind)] != behind:
                end = data.find(b"\r", at, at + _LONGEST_VALUE)
                if end <= at or data[end : end + len(behind)] != behind:
                    return None
            values.append(data[at:end])
            at = end + len(behind)
        if len(values) > 1 and not b"".join(values).replace(b"-", b"").isalnum():
            return None
        length = values[self._sized]
        if not length.isdigit() or int(length) != len(data) - at:
            return None
        self._used = True
        self.values = values
        return data[at:]

    def learn(self, data: bytes) -> bool:
        """Learn the head of ``data``, a whole message, unless heads seldom come again. The caller sets ``meaning``."""
        if self._pause:
            self._pause -= 1
            return False
        end = data.find(b"\r\n\r\n") + 4
        if not 4 <= end <= _LONGEST_HEAD:
            return False
        first, *lines = data[: end - 4].split(b"\r\n")
        names = [line.partition(b":")[0].lower() for line in lines]
        places: list[int] = []
        begun, sizes, length, sized = [first + b"\r\n"], [], b"", 0
        for place, (name, line) in enumerate(zip(names, lines, strict=True)):
            value = line.partition(b": ")[2]
            if name in self._varying and names.count(name) == 1 and _is_plain(value):
                if name == _LENGTH:
                    length, sized = value, len(places)
                places.append(place)
                sizes.append(len(value))
                begun[-1] += line[: -len(value)]
                begun.append(b"\r\n")
            else:
                begun[-1] += line + b"\r\n"
        begun[-1] += b"\r\n"
        if not length.isdigit() or int(length) != len(data) - end:
            return False
        self._count_miss()
        self.places, self._begin, self._sized = places, begun[0], sized
        self._parts = list(zip(sizes, begun[1:], strict=True))
        return True

    def _count_miss(self) -> None:
        """Another head than the known one came."""
        self._misses = 0 if self._used else self._misses + 1
        self._used = False
        if self._misses == _MOST_MISSES:
            self._misses -= 2  # two heads suffice after the pause
            self._pause = _PAUSE


def _is_plain(value: bytes) -> bool:
    return len(value) < _LONGEST_VALUE and value.replace(b"-", b"").isalnum()
