"""The bundled schedulers and swappers."""

from __future__ import annotations

from enginehouse import Register, Scheduler, Swapper, hookimpl
from enginehouse_scheduling.fair import Fair
from enginehouse_scheduling.fifo import Fifo
from enginehouse_scheduling.group import Group
from enginehouse_scheduling.matrix.swapper import Matrix
from enginehouse_scheduling.memory import Memory


@hookimpl
def register_schedulers(register: Register[Scheduler]) -> None:
    """Register the schedulers: the configured one decides when requests run and models load."""
    register("fifo", Fifo)
    register("fair", Fair)


@hookimpl
def register_swappers(register: Register[Swapper]) -> None:
    """Register the swappers: the configured one chooses the replicas to evict."""
    register("group", Group)
    register("matrix", Matrix)
    register("memory", Memory)
