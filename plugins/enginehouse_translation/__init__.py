"""Translates requests and answers between the protocols of clients and that of engines.

::

    translation          the middleware: opens requests of clients' protocols
    translated_exchange  a request in a protocol that its engines may not speak
    translating_writer   writes an answer in its client's protocol
    watching_writer      shows a protocol the answer of an engine that speaks it
    turns                shares the event loop between streams with a lot to translate
"""

from __future__ import annotations

from enginehouse import Middleware, Register, hookimpl
from enginehouse_translation.translation import Translating


@hookimpl
def register_middleware(register: Register[Middleware]) -> None:
    """Register the middleware, which is used for the paths of clients' protocols."""
    register("translation", Translating)
