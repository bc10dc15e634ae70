"""Detects changes of a file, and of the files in folders."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple


class Stamp(NamedTuple):
    """The status of a file, which changes with its contents: time of change in ns, size, inode and device."""

    changed_ns: int
    size: int
    inode: int
    device: int


def stamp(file: Path, stat: Callable[[Path], os.stat_result] = os.stat) -> Stamp | None:
    """The status of ``file``, or of the target of a link; ``None`` if it is missing."""
    try:
        found = stat(file)
    except OSError:
        return None
    return Stamp(found.st_mtime_ns, found.st_size, found.st_ino, found.st_dev)


class FileWatch:
    """Compares the status of ``file`` from call to call.

    A missing file is no change, because it may be about to be replaced. To skip a file that is still being written, a
    change is reported only when two calls in a row find the same new status.
    """

    def __init__(self, file: Path, stat: Callable[[Path], os.stat_result] = os.stat) -> None:
        self._file = file
        self._stat = stat
        self._known = self._seen = stamp(file, stat)

    def changed(self) -> bool:
        """Whether the file has changed since this last returned ``True``. Call it periodically."""
        before, self._seen = self._seen, stamp(self._file, self._stat)
        if self._seen is None or self._seen != before or self._seen == self._known:
            return False
        self._known = self._seen
        return True


class FolderWatch:
    """Notices that files of ``folders`` have appeared, vanished or changed, once nothing changes any more."""

    def __init__(self, folders: Callable[[], Iterable[Path]]) -> None:
        self._folders = folders
        self._known = self._last = self._look()

    def changed(self) -> bool:
        """Whether the files differ from those last reported, and equal those of the last call: none is half written."""
        before, self._last = self._last, self._look()
        if self._last == self._known or self._last != before:
            return False
        self._known = self._last
        return True

    def _look(self) -> frozenset[tuple[str, int, int]]:
        files = [file for folder in self._folders() for file in folder.glob("*")]
        return frozenset(_identity(file) for file in files)


def _identity(file: Path) -> tuple[str, int, int]:
    try:
        status = file.stat()
    except OSError:
        return str(file), 0, 0
    return str(file), status.st_size if file.is_file() else 0, status.st_mtime_ns if file.is_file() else 0
