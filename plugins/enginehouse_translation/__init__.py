"""Translates requests and answers between the protocols of clients and that of engines.

::

    translation          the middleware: requests in protocols that their engines may not speak
    translating_writer   writes an answer in its client's protocol, in turns with other streams
    watching_writer      shows a protocol the answer of an engine that speaks it itself
"""

from __future__ import annotations

from enginehouse import Middleware, Register, hookimpl
from enginehouse_translation.translation import Translating


@hookimpl
def register_middleware(register: Register[Middleware]) -> None:
    """Register the middleware, which is used for the paths of clients' protocols."""
    register("translation", Translating)
