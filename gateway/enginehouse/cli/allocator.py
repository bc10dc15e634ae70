"""Settings of the C library's allocator for a process that serves for months."""

from __future__ import annotations

import ctypes
import os
import platform

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
"""From glibc's ``malloc.h``."""
_LARGEST_IN_HEAP, _MOST_KEPT = 512 * 1024, 8 * 1024 * 1024
"""Bytes. The kernel clears the pages of each larger block, and a prompt of 200 KB takes several blocks of its size."""
_EVERY = 5
"""Calls of ``Allocator.tick`` for one that returns memory."""
_SET_BY_HAND = frozenset({"MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_"})


class Allocator:
    """Makes glibc return to the system the memory that large bodies have used.

    When a large block is freed, glibc raises two thresholds: from then on it takes blocks up to that size from its
    heap, up to 32 MiB, and keeps twice as much of freed memory there. Fixed thresholds stay where they are. Other C
    libraries, and thresholds that the environment sets, are left alone.
    """

    def __init__(self) -> None:
        self._library: ctypes.CDLL | None = None
        self._ticks = 0

    def start(self) -> bool:
        """Fix the thresholds; whether that is done."""
        if platform.libc_ver()[0] != "glibc" or not _SET_BY_HAND.isdisjoint(os.environ):
            return False
        self._library = library = ctypes.CDLL(None)
        kept: int = library.mallopt(_M_TRIM_THRESHOLD, _MOST_KEPT)
        return bool(kept and library.mallopt(_M_MMAP_THRESHOLD, _LARGEST_IN_HEAP))

    def tick(self) -> bool:
        """Return what is free between other blocks, at each fifth call; whether that is done. Call it each second."""
        self._ticks += 1
        if self._library is None or self._ticks % _EVERY:
            return False
        self._library.malloc_trim(0)
        return True
