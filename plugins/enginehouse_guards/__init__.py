"""Guards as interceptors: what the list ``guards`` names sees requests first and answers last.

::

    adapter       makes an interceptor of each guard
    answers       has a guard look at one answer
    texts         the text of one choice, whose end is held back for the guard
    active_guard  a guard, and what follows if it fails
"""

from __future__ import annotations

from enginehouse import Register, hookimpl
from enginehouse_guards.adapter import GuardAdapter
from enginehouse_kit.interceptors import Interceptor


@hookimpl
def register_interceptors(register: Register[Interceptor]) -> None:
    """Register the adapter, which is used if ``guards`` names anything."""
    register("guards", GuardAdapter)
