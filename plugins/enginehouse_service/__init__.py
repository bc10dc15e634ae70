"""The gateway as a service of systemd (Linux) or launchd (macOS): ``enginehouse service``. It serves for months."""

from __future__ import annotations

from enginehouse import Observer, Register, hookimpl
from enginehouse_service.allocator import Allocator
from enginehouse_service.loop_watch import LoopWatch
from enginehouse_service.notices import ServiceNotices


@hookimpl
def register_observers(register: Register[Observer]) -> None:
    """Register what looks after a process that serves."""
    register("allocator", Allocator)
    register("loop_watch", LoopWatch)
    register("notices", ServiceNotices)
