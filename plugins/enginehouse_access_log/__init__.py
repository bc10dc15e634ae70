"""The access log: a line for each request, on standard error."""

from __future__ import annotations

from enginehouse import Observer, Register, hookimpl
from enginehouse_access_log.observer import AccessLogObserver


@hookimpl
def register_observers(register: Register[Observer]) -> None:
    """Register what writes the access log."""
    register("access_log", AccessLogObserver)
