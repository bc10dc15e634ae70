"""The access log: a line for each request, on standard error.

::

    observer     learns which requests have ended, and writes, as [telemetry] says
    access_log   writes lines several at once, in a thread
    access_line  the line of one request
"""

from __future__ import annotations

from enginehouse import Observer, Register, hookimpl
from enginehouse_access_log.observer import AccessLogObserver


@hookimpl
def register_observers(register: Register[Observer]) -> None:
    """Register what writes the access log."""
    register("access_log", AccessLogObserver)
