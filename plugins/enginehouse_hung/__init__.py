"""Gives up engines that hang: frozen ones, and those that pass their health check and serve no request.

::

    service     looks at live requests, and asks silent engines for one token
    silences    tells a silence that is too long from a usual one
    frozen      tells a launched engine that answers no health check because it hangs from one that computes
"""

from __future__ import annotations

from enginehouse import Register, Service, hookimpl
from enginehouse_hung.service import Hung


@hookimpl
def register_services(register: Register[Service]) -> None:
    """Register the service."""
    register("hung", Hung)
