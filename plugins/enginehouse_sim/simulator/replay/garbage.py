"""The garbage collector during a replay."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

_ALLOCATIONS = 100_000


@contextmanager
def rare_collections() -> Iterator[None]:
    """Let the garbage collector run rarely: a replay makes few cycles, and has many objects to examine.

    It never examines what was there before, such as all modules.
    """
    before = gc.get_threshold()
    gc.freeze()
    gc.set_threshold(_ALLOCATIONS, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()
