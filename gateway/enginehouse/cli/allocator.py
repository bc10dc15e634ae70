"""Settings of the C library's allocator for a process that serves for months."""

from __future__ import annotations

import ctypes
import os
import platform
from collections.abc import Callable

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
"""From glibc's ``malloc.h``."""
_LARGEST_IN_HEAP, _MOST_KEPT = 512 * 1024, 8 * 1024 * 1024
"""Bytes. Blocks of the system have pages that the kernel clears: a prompt of 200 KB has several blocks of its size."""
_EVERY_S = 5.0
_SET_BY_HAND = frozenset({"MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_"})


def return_freed_memory(call_later: Callable[[float, Callable[[], None]], object]) -> bool:
    """Have glibc return memory to the system that large bodies have left; whether that is done.

    When a large block is freed, glibc raises two thresholds: from then on it takes blocks up to that size from its
    heap, up to 32 MiB, and keeps twice as much of freed memory there. Fixed thresholds stay where they are. What is
    free between other blocks is returned every five seconds, by the loop's ``call_later``. Other C libraries, and
    thresholds that the environment sets, are left alone.
    """
    if platform.libc_ver()[0] != "glibc" or not _SET_BY_HAND.isdisjoint(os.environ):
        return False
    library = ctypes.CDLL(None)

    def trim() -> None:
        library.malloc_trim(0)
        call_later(_EVERY_S, trim)

    call_later(_EVERY_S, trim)
    return bool(library.mallopt(_M_TRIM_THRESHOLD, _MOST_KEPT) and library.mallopt(_M_MMAP_THRESHOLD, _LARGEST_IN_HEAP))
