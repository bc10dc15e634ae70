"""The file that receives an engine's output."""

from __future__ import annotations

import asyncio
import ctypes
import os
from collections.abc import Callable
from pathlib import Path

from enginehouse.launchers import EngineOutput

_MOST = 256 * 1024
"""The most bytes read at once: as many as the gateway's log of an engine keeps. Older output is skipped."""
_TRIED = 4096
"""Bytes: a block of most file systems."""
_FLOOD = 4
"""A file of so many times the limit is truncated even if the engine prints on: what it prints meanwhile is lost."""
_FOLLOWED_S, _PAUSE_S = 0.004, 0.05
"""The shortest time between two copies: with a reader who waits for output, and without one."""
_LOOK_EVERY_S = 0.1
_IN_MODIFY = 0x2
_MOST_EVENTS = 64 * 1024
"""Bytes: more than the events that the kernel keeps for one file."""


class LogFile:
    """Receives an engine's output and copies it to ``output``.

    A file outlives the gateway, where a pipe would block or break an engine whose gateway died. When it has reached
    ``limit`` bytes, the file is truncated as soon as the engine pauses, so the engine must append: give it
    ``descriptor``. ``on_print`` is called after each copy.
    """

    def __init__(self, path: Path, output: EngineOutput, *, fresh: bool, limit: int = 16 * 1024**2) -> None:
        flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | (os.O_TRUNC if fresh else 0)
        self.path = path
        self.on_print: Callable[[], None] | None = None
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
        if behind < 0:  # another gateway, which takes this engine over, has truncated it
            self._position = 0
            behind = 0
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
            if self.on_print is not None:
                self.on_print()
        return bool(data)

    async def follow(self) -> None:
        """Copy output for ever, soon after it was printed."""
        changes = _FileChanges(self.path)
        try:
            while True:
                if not self.read():
                    await changes.wait()
                    self.read()  # at once: it may be the line that tells that the engine is ready
                await asyncio.sleep(_FOLLOWED_S if self._output.followed else _PAUSE_S)
        finally:
            changes.close()

    def close(self) -> None:
        """Copy the rest and delete the file."""
        self.read()
        os.close(self.descriptor)
        self.path.unlink(missing_ok=True)


class _FileChanges:
    """Waits for changes of one file: by inotify, or for the time of the next look where there is none."""

    def __init__(self, path: Path) -> None:
        self._changed = asyncio.Event()
        self._descriptor = _watch(path)
        if self._descriptor is not None:
            asyncio.get_running_loop().add_reader(self._descriptor, self._note, self._descriptor)

    async def wait(self) -> None:
        """Return when the file may have changed since the last call."""
        if self._descriptor is None:
            await asyncio.sleep(_LOOK_EVERY_S)
        else:
            await self._changed.wait()
            self._changed.clear()

    def close(self) -> None:
        """Stop watching. Later calls do nothing."""
        if self._descriptor is not None:
            asyncio.get_running_loop().remove_reader(self._descriptor)
            os.close(self._descriptor)
            self._descriptor = None

    def _note(self, descriptor: int) -> None:
        os.read(descriptor, _MOST_EVENTS)
        self._changed.set()


def _watch(path: Path) -> int | None:
    """An inotify descriptor for writes to ``path``; ``None`` on other systems, and if the user has too many."""
    libc = ctypes.CDLL(None, use_errno=True)
    begin: Callable[[int], int] | None = getattr(libc, "inotify_init1", None)
    if begin is None or (descriptor := begin(os.O_NONBLOCK | os.O_CLOEXEC)) < 0:
        return None
    if libc.inotify_add_watch(descriptor, os.fsencode(path), _IN_MODIFY) < 0:
        os.close(descriptor)
        return None
    return descriptor
