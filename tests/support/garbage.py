"""What is in memory, and what only the garbage collector can free."""

from __future__ import annotations

import asyncio
import gc
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def without_collector() -> Iterator[None]:
    """Collect, then no more. What is left is exempted for good: to walk through it takes a tenth of a second."""
    gc.collect()
    gc.freeze()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def living(kind: type) -> int:
    """Count the objects made since ``without_collector`` began whose class is ``kind``.

    Compiled classes have no weak references that could tell.
    """
    return sum(type(each) is kind for each in gc.get_objects())


def unreachable() -> list[object]:
    """The objects made since ``without_collector`` began that only the collector can free."""
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        gc.collect()
        return gc.garbage[:]
    finally:
        gc.set_debug(0)
        gc.garbage.clear()


def left_behind() -> Counter[str]:
    """Count, by class, the gateway's own objects, the failures and the futures that only the collector can free."""
    return Counter(
        type(each).__qualname__
        for each in unreachable()
        if type(each).__module__.startswith("enginehouse") or isinstance(each, (BaseException, asyncio.Future))
    )
