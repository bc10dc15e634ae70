"""The last lines of a log, within limits."""

from __future__ import annotations

import asyncio
import itertools
from collections import deque
from collections.abc import Sequence
from itertools import islice
from typing import NamedTuple

_LONGEST_LINE = 8192
"""Bytes; a longer line is cut."""
_arrivals = itertools.count(1)


class LogLine(NamedTuple):
    """A line without its line break. ``arrival`` orders lines by time, across all rings."""

    arrival: int
    text: str


class LogRing:
    """The last lines that an engine or the gateway printed: at most ``max_lines``, at most ``max_bytes``.

    Writing never waits. Each reader keeps its own position; one that falls behind loses the oldest lines and reads
    their number. Lines are numbered from 0 over the ring's whole life: ``written`` is the number of the next one.
    ``received``: the number of bytes written, also of a line that has not ended.
    """

    def __init__(self, max_lines: int = 2000, max_bytes: int = 256 * 1024) -> None:
        self._max_lines = max_lines
        self._max_bytes = max_bytes
        self._lines: deque[tuple[int, bytes]] = deque()
        self._bytes = 0
        self.written = 0
        self._unfinished = b""
        self.received = 0
        self._followers: set[asyncio.Event] = set()

    @property
    def oldest(self) -> int:
        """The number of the oldest line kept."""
        return self.written - len(self._lines)

    @property
    def followed(self) -> bool:
        """Whether a reader waits for new lines."""
        return bool(self._followers)

    def write(self, data: bytes) -> None:
        """Add output, in pieces of any size. Carriage returns, as progress bars print them, end lines too."""
        self.received += len(data)
        lines = (self._unfinished + data).splitlines(keepends=True)
        ended = lines and lines[-1].endswith(b"\n")
        self._unfinished = b"" if ended or not lines else lines.pop()
        if len(self._unfinished) > _LONGEST_LINE:
            lines.append(self._unfinished)
            self._unfinished = b""
        self._add(lines)

    def finish(self) -> None:
        """End the output. An unfinished line becomes a line."""
        if self._unfinished:
            self._add([self._unfinished])
            self._unfinished = b""

    def tail(self, count: int, since: int = 0) -> Sequence[str]:
        """The last ``count`` lines, oldest first, none before line number ``since``."""
        return [line.text for line in self._from(max(self.written - count, since, self.oldest))]

    def read(self, place: int) -> Sequence[LogLine]:
        """All lines from number ``place`` on. If some of them are lost, the first line has their number."""
        lost = self.oldest - place
        lines = self._from(max(place, self.oldest))
        if lost > 0:
            lines.insert(0, LogLine(lines[0].arrival if lines else 0, f"[... {lost} lines lost: read too slowly ...]"))
        return lines

    def follow(self, more: asyncio.Event) -> None:
        """Set ``more`` whenever a line is written, until ``unfollow``."""
        self._followers.add(more)

    def unfollow(self, more: asyncio.Event) -> None:
        """Stop setting ``more``."""
        self._followers.discard(more)

    def _from(self, place: int) -> list[LogLine]:
        kept = islice(self._lines, place - self.oldest, None)
        return [LogLine(arrival, line.decode(errors="replace")) for arrival, line in kept]

    def _add(self, lines: Sequence[bytes]) -> None:
        if not lines:
            return
        arrival = next(_arrivals)
        self.written += len(lines)
        kept = [line.rstrip(b"\r\n")[:_LONGEST_LINE] for line in lines[-self._max_lines :]]
        self._lines.extend((arrival, line) for line in kept)
        self._bytes += sum(map(len, kept))
        while len(self._lines) > self._max_lines or self._bytes > self._max_bytes:
            self._bytes -= len(self._lines.popleft()[1])
        for more in self._followers:
            more.set()
