"""Shares the energy of this machine among the requests that its engines serve.

::

    service    reads the meters, and adds to usage and metrics
    meters     counters of GPUs (NVML) and processors (RAPL)
"""

from __future__ import annotations

from enginehouse import Register, Service, hookimpl
from enginehouse_energy.service import Energy


@hookimpl
def register_services(register: Register[Service]) -> None:
    """Register the service."""
    register("energy", Energy)
