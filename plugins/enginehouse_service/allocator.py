"""Returns memory to the system."""

from __future__ import annotations

import asyncio
import ctypes
import os
from typing import Final

from enginehouse import Observer
from enginehouse.runtime import SERVING

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
"""From glibc's ``malloc.h``."""
_LARGEST_IN_HEAP, _MOST_KEPT = 512 * 1024, 8 * 1024 * 1024
"""Bytes. The kernel clears the pages of each larger block, and a prompt of 200 KB takes several blocks of its size."""
_EVERY_S: Final = 5.0
_SET_BY_HAND: Final = frozenset({"MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_"})


class Allocator(Observer):
    """Makes glibc return to the system the memory that large bodies have used, in each process that serves requests.

    When a large block is freed, glibc raises two thresholds: from then on it takes blocks up to that size from its
    heap, up to 32 MiB, and keeps twice as much of freed memory there. Fixed thresholds stay where they are. Other C
    libraries, and thresholds that the environment sets, are left alone.
    """

    async def start(self) -> None:
        library = _fixed() if SERVING.is_stopping is not None else None
        while library is not None:
            await asyncio.sleep(_EVERY_S)
            library.malloc_trim(0)  # what is free between other blocks


def _fixed() -> ctypes.CDLL | None:
    """The library, with fixed thresholds; ``None`` if that cannot be done."""
    if "CS_GNU_LIBC_VERSION" not in os.confstr_names or not _SET_BY_HAND.isdisjoint(os.environ):
        return None
    library = ctypes.CDLL(None)
    fixed = library.mallopt(_M_TRIM_THRESHOLD, _MOST_KEPT) and library.mallopt(_M_MMAP_THRESHOLD, _LARGEST_IN_HEAP)
    return library if fixed else None
