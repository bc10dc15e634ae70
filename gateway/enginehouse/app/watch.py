"""Detects changes of a file, and of the files in folders."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple


class Stamp(NamedTuple):
    """The status of a file, which changes with its contents: time of change in ns, size, inode and device."""

    changed_ns: int
    size: int
    inode: int
    device: int


def stamp(file: Path) -> Stamp | None:
    """The status of ``file``, or of the target of a link; ``None`` if it is missing or out of reach."""
    try:
        found = file.stat()
    except OSError:
        return None
    return Stamp(found.st_mtime_ns, found.st_size, found.st_ino, found.st_dev)


class ChangeWatch:
    """Compares what ``look`` finds from call to call. ``None`` is no change: a file may be about to be replaced.

    To skip a file that is still being written, a change is reported only when two calls in a row find the same.
    """

    def __init__(self, look: Callable[[], object]) -> None:
        self._look = look
        self._known = self._seen = look()

    def changed(self) -> bool:
        """Whether something has changed since this last returned ``True``. Call it periodically."""
        before, self._seen = self._seen, self._look()
        if self._seen is None or self._seen != before or self._seen == self._known:
            return False
        self._known = self._seen
        return True


def watch_folders(folders: Callable[[], Iterable[Path]]) -> ChangeWatch:
    """Notices that files of ``folders`` have appeared, vanished or changed."""

    def look() -> frozenset[tuple[Path, Stamp | None]]:
        found = (file for folder in folders() for file in folder.glob("*"))
        return frozenset((file, stamp(file) if file.is_file() else None) for file in found)

    return ChangeWatch(look)
