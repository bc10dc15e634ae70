"""Progress for clients whose streams wait: comments of the stream, or the reasoning of a chat."""

from __future__ import annotations

from enginehouse import Observer, Register, hookimpl
from enginehouse_progress.observer import ProgressReports


@hookimpl
def register_observers(register: Register[Observer]) -> None:
    """Register what reports progress."""
    register("progress", ProgressReports)
