"""Settings of the C library's allocator for a process that serves for months."""

from __future__ import annotations

import ctypes
import os
import platform

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
"""From glibc's ``malloc.h``."""
_DEFAULT_BYTES = 128 * 1024
"""glibc's default of both, before the first large block is freed."""
_SET_BY_HAND = frozenset({"MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_"})


def return_freed_memory() -> bool:
    """Have glibc return memory to the system that large bodies have left; whether that is done.

    When a large block is freed, glibc raises two thresholds: from then on it takes blocks up to that size from its
    heap, up to 32 MiB, and keeps twice as much of freed memory there. Fixed thresholds stay low. Other C libraries,
    and thresholds that the environment sets, are left alone.
    """
    if platform.libc_ver()[0] != "glibc" or not _SET_BY_HAND.isdisjoint(os.environ):
        return False
    mallopt = ctypes.CDLL(None).mallopt
    return bool(mallopt(_M_TRIM_THRESHOLD, _DEFAULT_BYTES) and mallopt(_M_MMAP_THRESHOLD, _DEFAULT_BYTES))
