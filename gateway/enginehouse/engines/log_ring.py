"""What an engine printed: the last lines, bounded, followed by whoever asks."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Sequence
from itertools import islice

_LONGEST_LINE = 8192
"""Bytes; a longer line is cut."""


class LogRing:
    """The last lines of an engine's output, at most ``max_lines`` and at most ``max_bytes``.

    Writing never waits. Each follower reads the ring at its own pace from its own place; one that falls behind finds
    the oldest lines gone and is told how many. Lines are counted from 0 over the ring's whole life.
    """

    def __init__(self, max_lines: int = 2000, max_bytes: int = 256 * 1024) -> None:
        self._max_lines = max_lines
        self._max_bytes = max_bytes
        self._lines: deque[bytes] = deque()
        self._bytes = 0
        self._written = 0
        self._unfinished = b""
        self._more = asyncio.Event()
        self._waiting = 0

    @property
    def written(self) -> int:
        """How many lines were ever written: the number of the next one."""
        return self._written

    @property
    def followed(self) -> bool:
        """Whether somebody waits for the next line."""
        return self._waiting > 0

    def write(self, data: bytes) -> None:
        """Add output in pieces of any size. A progress bar's carriage returns end lines too."""
        lines = (self._unfinished + data).splitlines(keepends=True)
        ended = lines and lines[-1].endswith(b"\n")
        self._unfinished = b"" if ended or not lines else lines.pop()
        if len(self._unfinished) > _LONGEST_LINE:
            lines.append(self._unfinished)
            self._unfinished = b""
        self._add(lines)

    def finish(self) -> None:
        """The engine prints no more: what it left unfinished is a line."""
        if self._unfinished:
            self._add([self._unfinished])
            self._unfinished = b""

    def tail(self, count: int, since: int = 0) -> Sequence[str]:
        """The last ``count`` lines, oldest first, but none before the line number ``since``."""
        count = min(count, len(self._lines), self._written - since)
        return [_text(line) for line in islice(self._lines, len(self._lines) - max(count, 0), None)]

    def follow(self, history: int = 0) -> AsyncIterator[str]:
        """The last ``history`` lines, then every line as it is written, for ever."""
        return self._from(self._written - min(history, len(self._lines)))

    async def _from(self, place: int) -> AsyncIterator[str]:
        while True:
            oldest = self._written - len(self._lines)
            if place < oldest:
                yield f"[... {oldest - place} lines lost: read too slowly ...]"
                place = oldest
            elif place < self._written:
                place += 1
                yield _text(self._lines[place - 1 - oldest])
            else:
                await self._wait_for_more()

    async def _wait_for_more(self) -> None:
        self._more.clear()
        self._waiting += 1
        try:
            await self._more.wait()
        finally:
            self._waiting -= 1

    def _add(self, lines: Sequence[bytes]) -> None:
        if not lines:
            return
        self._written += len(lines)
        kept = [line.rstrip(b"\r\n")[:_LONGEST_LINE] for line in lines[-self._max_lines :]]
        self._lines.extend(kept)
        self._bytes += sum(map(len, kept))
        while len(self._lines) > self._max_lines or self._bytes > self._max_bytes:
            self._bytes -= len(self._lines.popleft())
        self._more.set()


def _text(line: bytes) -> str:
    return line.decode(errors="replace")
