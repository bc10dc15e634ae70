"""The gateway as a service of systemd (Linux) or launchd (macOS): ``enginehouse service``. It serves for months."""

from __future__ import annotations

from enginehouse import Observer, Register, hookimpl


@hookimpl
def register_observers(register: Register[Observer]) -> None:
    """Register what returns memory."""
    register("allocator", _allocator)


def _allocator() -> Observer:
    from enginehouse_service.allocator import Allocator

    return Allocator()
