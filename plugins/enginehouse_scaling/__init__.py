"""Models with ``replicas = { min, max }`` get more or fewer replicas, as their load wants.

::

    service           reads the load of models, asks the scaler once a second, and has its decisions carried out
    decide            the bundled scaler, and a check of what the configured one answers
    pages             /api/scale
    explain           enginehouse explain scale
"""

from __future__ import annotations

from enginehouse import Register, Service, hookimpl
from enginehouse_kit.scalers import Scaler
from enginehouse_scaling.decide import ExpectedWait
from enginehouse_scaling.service import Scaling


@hookimpl
def register_scalers(register: Register[Scaler]) -> None:
    """Register the scaler: the configured one decides how many replicas models have."""
    register("expected_wait", ExpectedWait)


@hookimpl
def register_services(register: Register[Service]) -> None:
    """Register the service that asks the scaler."""
    register("scaling", Scaling)
