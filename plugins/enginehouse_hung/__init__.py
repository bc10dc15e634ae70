"""Gives up engines that hang: frozen ones, and those that pass their health check and serve no request."""

from __future__ import annotations

from enginehouse import Register, Service, hookimpl
from enginehouse_hung.service import Hung


@hookimpl
def register_services(register: Register[Service]) -> None:
    """Register the service."""
    register("hung", Hung)
