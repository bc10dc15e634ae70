"""Asks interceptors and guards about requests, and passes answers through their filters.

::

    interception      the middleware: all interceptors in force, and requests that they decide about
    filtering_writer  writes an answer through its filters
    answer_filters    what becomes of one answer in them
    stage             an interceptor in force and one of its filters, whose results are checked
    stream_events     decodes events for filters, and encodes what these make
    sharing_writer    sends an answer to the requests that have joined it too
"""

from __future__ import annotations

from enginehouse import Middleware, Register, hookimpl
from enginehouse_interception.interception import Interception


@hookimpl
def register_middleware(register: Register[Middleware]) -> None:
    """Register the middleware, which is used if ``interceptors`` or ``guards`` names anything."""
    register("interception", Interception)
