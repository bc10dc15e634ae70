"""The bundled scheduling plugins: when a request runs, and what has to go so that its model can."""

from __future__ import annotations

from enginehouse import Register, Scheduler, Swapper, hookimpl
from enginehouse_scheduling.fifo import Fifo
from enginehouse_scheduling.group import Group
from enginehouse_scheduling.matrix.swapper import Matrix
from enginehouse_scheduling.memory import Memory


@hookimpl
def register_schedulers(register: Register[Scheduler]) -> None:
    """When a request runs."""
    register("fifo", Fifo)


@hookimpl
def register_swappers(register: Register[Swapper]) -> None:
    """What has to go."""
    register("group", Group)
    register("matrix", Matrix)
    register("memory", Memory)
