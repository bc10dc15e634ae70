"""The file that receives an engine's output."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

from enginehouse import EngineOutput

_MOST = 256 * 1024
"""The most bytes read at once: as many as the gateway's log of an engine keeps. Older output is skipped."""
_TRIED = 4096
"""Bytes: a block of most file systems."""
_FLOOD = 4
"""A file of so many times the limit is truncated even if the engine prints on: what it prints meanwhile is lost."""
_QUICK_S, _SLOW_S = 0.05, 1.0


class LogFile:
    """Receives an engine's output and copies it to ``output``.

    A file outlives the gateway, where a pipe would block or break an engine whose gateway died. When it has reached
    ``limit`` bytes, the file is truncated as soon as the engine pauses, so the engine must append: give it
    ``descriptor``.
    """

    def __init__(self, path: Path, output: EngineOutput, *, fresh: bool, limit: int = 16 * 1024**2) -> None:
        flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | (os.O_TRUNC if fresh else 0)
        self.path = path
        self.descriptor = os.open(path, flags, 0o600)
        self._output = output
        self._limit = limit
        self._position = 0
        self._in_line = False

    @classmethod
    def writable(cls, path: Path, output: EngineOutput, limit: int = 16 * 1024**2) -> LogFile:
        """An empty log. Raises ``OSError`` if it cannot be written, as on a full volume: an engine may exit of that."""
        log = cls(path, output, fresh=True, limit=limit)
        try:
            os.write(log.descriptor, b"\n" * _TRIED)
            os.ftruncate(log.descriptor, 0)
        except OSError:
            os.close(log.descriptor)
            path.unlink(missing_ok=True)
            raise
        return log

    def read(self) -> bool:
        """Copy the output since the last call. Returns whether there was any."""
        behind = os.fstat(self.descriptor).st_size - self._position
        skipped = max(0, behind - _MOST)
        self._position += skipped
        data = os.pread(self.descriptor, _MOST, self._position)
        self._position += len(data)
        if self._position >= (_FLOOD * self._limit if data else self._limit):
            os.ftruncate(self.descriptor, 0)
            self._position = 0
        if skipped:
            start = b"\n" if self._in_line else b""
            self._output.write(start + b"[... %d bytes skipped: printed too quickly ...]\n" % skipped)
        if data:
            self._in_line = not data.endswith(b"\n")
            self._output.write(data)
        return bool(data)

    async def follow(self) -> None:
        """Copy output for ever, at short intervals while there is output or a reader waits, else at longer ones."""
        pause = _QUICK_S
        while True:
            quickly = self.read() or self._output.followed
            pause = _QUICK_S if quickly else min(2 * pause, _SLOW_S)
            await asyncio.sleep(pause)

    def close(self) -> None:
        """Copy the rest and delete the file."""
        self.read()
        os.close(self.descriptor)
        self.path.unlink(missing_ok=True)
