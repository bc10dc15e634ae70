"""The prefix caches of launched engines outlive swaps.

::

    service    gives each launched backend its keeper, and counts what becomes of caches
    keeper     saves the cache of one backend's engine in files, and restores it after the next launch
"""

from __future__ import annotations

from enginehouse import Register, Service, hookimpl
from enginehouse_kept_caches.service import KeptCaches


@hookimpl
def register_services(register: Register[Service]) -> None:
    """Register the service."""
    register("kept_caches", KeptCaches)
