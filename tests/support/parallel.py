"""Processes that start at the same time."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager

from enginehouse_kit.engines import SimEngine


@contextmanager
def all_of(*engines: SimEngine) -> Iterator[None]:
    """Start all engines at once; stop all of them at the end."""
    with ExitStack() as stack, ThreadPoolExecutor() as pool:
        for engine in engines:
            stack.callback(engine.stop)
        list(pool.map(SimEngine.start, engines))
        yield
