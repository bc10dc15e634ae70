"""The ``sim`` driver and the simulated engine that it launches: ``python -m enginehouse_sim``.

Installing the plugin costs nothing: only ``__main__`` and the commands import the engine.
"""

from __future__ import annotations

from enginehouse import Driver, Register, hookimpl
from enginehouse_sim.driver import SimDriver

__all__ = ["SimDriver"]


@hookimpl
def register_drivers(register: Register[Driver]) -> None:
    """Offer the ``sim`` driver."""
    register("sim", SimDriver)
