"""Texts of earlier prompts, with which new ones are compared: most prompts begin as another one did."""

from __future__ import annotations

from collections import OrderedDict
from typing import Final
from zlib import crc32

_LONGEST: Final = 16
"""Pieces of a run. A longer one would be compared hardly faster, and copied longer when it grows."""
_MOST_KEPT: Final = 4096
"""Pieces in all: 16 MiB of ASCII if each has 4096 characters, or up to 64 MiB."""


def number_of(piece: str) -> int:
    """Return a checksum: Python's hash of a text differs in each process."""
    return crc32(piece.encode("utf-8", "surrogatepass"))


class _Run:
    """Consecutive pieces of a text, and the chunk that each of them ends."""

    __slots__ = ("chunks", "text")

    def __init__(self) -> None:
        self.text = ""
        self.chunks: list[int] = []


class KnownTexts:
    """The pieces that came after each chunk last, in runs. ``size``: the characters of a piece.

    To compare two pieces takes a tenth of the time of a checksum, and still less in a run. A run grows with its prompt,
    and ends where prompts part.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self._runs: OrderedDict[int, _Run] = OrderedDict()
        self._kept = 0

    def chunks(self, before: int, text: str, number: int) -> list[int]:
        """Return the chunks of the first ``number`` pieces of ``text``, whose root is ``before``."""
        chunks = list[int]()
        growing: _Run | None = None
        while (place := len(chunks)) < number:
            run = self._runs.get(before)
            if run is None:
                if growing is None or len(growing.chunks) >= _LONGEST:
                    growing = self._runs[before] = _Run()
                chunks += self._grow(growing, before, text, place, min(number, place + _LONGEST - len(growing.chunks)))
            else:
                same = self._same(run, text, place)
                growing = run if same == len(run.chunks) else None
                if growing is None and place + same < number:  # they part here
                    self._cut(run, same)
                    same = same or len(self._grow(run, before, text, place, place + 1))
                chunks += run.chunks[:same]
            before = chunks[-1]
        while self._kept > _MOST_KEPT:
            self._kept -= len(self._runs.popitem(last=False)[1].chunks)
        return chunks

    def _same(self, run: _Run, text: str, place: int) -> int:
        """How many pieces of ``run`` stand in ``text``, too, from ``place`` on."""
        size, begin, same = self._size, place * self._size, 0
        if text.startswith(run.text, begin):
            return len(run.chunks)
        while text.startswith(run.text[same : same + size], begin + same):
            same += size
        return same // size

    def _cut(self, run: _Run, length: int) -> None:
        """Keep so many pieces of ``run``."""
        self._kept -= len(run.chunks) - length
        run.text = run.text[: length * self._size]
        del run.chunks[length:]

    def _grow(self, run: _Run, before: int, text: str, place: int, end: int) -> list[int]:
        """Add the pieces of ``text`` from ``place`` to ``end`` to ``run``, and return their chunks."""
        size, added = self._size, list[int]()
        for begin in range(place * size, end * size, size):
            before = hash((before, number_of(text[begin : begin + size])))
            added.append(before)
        run.text += text[place * size : end * size]
        run.chunks += added
        self._kept += len(added)
        return added
