"""The file that an engine prints into."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

from enginehouse.interfaces.launchers import EngineOutput

_MOST = 256 * 1024
"""Bytes read at once, which is what an engine's log keeps; what is further behind is passed over."""
_QUICK_S, _SLOW_S = 0.05, 1.0


class LogFile:
    """What an engine prints, read on into its ``output``.

    A file, because it outlives the gateway: an engine whose gateway died goes on printing and is neither blocked nor
    broken. It is cut back to nothing whenever it has grown to ``limit`` bytes, so it must be written by appending:
    ``descriptor`` is what to give to an engine.
    """

    def __init__(self, path: Path, output: EngineOutput, *, fresh: bool, limit: int = 16 * 1024**2) -> None:
        flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | (os.O_TRUNC if fresh else 0)
        self.path = path
        self.descriptor = os.open(path, flags, 0o600)
        self._output = output
        self._limit = limit
        self._position = 0
        self._in_line = False

    def read(self) -> bool:
        """Hand over what was printed since the last time; whether that is anything."""
        behind = os.fstat(self.descriptor).st_size - self._position
        passed_over = max(0, behind - _MOST)
        self._position += passed_over
        data = os.pread(self.descriptor, _MOST, self._position)
        self._position += len(data)
        if self._position >= self._limit:
            os.ftruncate(self.descriptor, 0)
            self._position = 0
        if passed_over:
            start = b"\n" if self._in_line else b""
            self._output.write(start + b"[... %d bytes passed over: printed too quickly ...]\n" % passed_over)
        if data:
            self._in_line = not data.endswith(b"\n")
            self._output.write(data)
        return bool(data)

    async def follow(self) -> None:
        """Read on for ever: quickly while something comes or somebody waits for it, else now and then."""
        pause = _QUICK_S
        while True:
            quickly = self.read() or self._output.followed
            pause = _QUICK_S if quickly else min(2 * pause, _SLOW_S)
            await asyncio.sleep(pause)

    def close(self) -> None:
        """Read to the end; the file is not needed any more."""
        self.read()
        os.close(self.descriptor)
        self.path.unlink(missing_ok=True)
