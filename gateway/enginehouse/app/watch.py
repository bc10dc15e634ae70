"""Whether a file was changed."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

_Stamp = tuple[int, int, int, int]


class FileWatch:
    """Looks at ``file``, which may be a link to what is exchanged, and at what it is a link to.

    A file that is missing is no change: it may be on its way. One that is being written is none either, so a change is
    told when two looks in a row have found the same.
    """

    def __init__(self, file: Path, stat: Callable[[Path], os.stat_result] = os.stat) -> None:
        self._file = file
        self._stat = stat
        self._known = self._seen = self._stamp()

    def changed(self) -> bool:
        """Whether there is something new, told once; to be asked every now and then."""
        before, self._seen = self._seen, self._stamp()
        if self._seen is None or self._seen != before or self._seen == self._known:
            return False
        self._known = self._seen
        return True

    def _stamp(self) -> _Stamp | None:
        try:
            found = self._stat(self._file)
        except OSError:
            return None
        return (found.st_mtime_ns, found.st_size, found.st_ino, found.st_dev)
