"""The collector of garbage cycles during a replay."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

_ALLOCATIONS = 100_000


@contextmanager
def rare_collections() -> Iterator[None]:
    """Collect once in many allocations: a replay makes few cycles, and each look at its live objects takes long."""
    before = gc.get_threshold()
    gc.set_threshold(_ALLOCATIONS, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)
