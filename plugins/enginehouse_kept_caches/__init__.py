"""The prefix caches of launched engines outlive swaps."""

from __future__ import annotations

from enginehouse import Register, Service, hookimpl
from enginehouse_kept_caches.service import KeptCaches


@hookimpl
def register_services(register: Register[Service]) -> None:
    """Register the service."""
    register("kept_caches", KeptCaches)
