"""Asks interceptors and guards about requests, and passes answers through their filters.

::

    interception          the middleware: opens requests
    intercepted_exchange  a request that interceptors decide about before it is routed
    interceptors          all interceptors in force
    in_force              one of them: what it says, its time limit, and what follows if it fails
    filtering_writer      writes an answer through its filters
    answer_filters        what becomes of one answer in them
    stage                 one filter, whose results are checked
    stream_events         decodes events for filters, and encodes what these make
    sharing_writer        sends an answer to the requests that have joined it too
    as_stream             a whole answer as a stream
"""

from __future__ import annotations

from enginehouse import Middleware, Register, hookimpl
from enginehouse_interception.interception import Interception


@hookimpl
def register_middleware(register: Register[Middleware]) -> None:
    """Register the middleware, which is used if ``interceptors`` or ``guards`` names anything."""
    register("interception", Interception)
