"""The ``sim`` driver and the simulated engine that it launches: ``python -m enginehouse_sim``.

The server's parts are imported by ``__main__`` alone, so that having the plugin installed costs nothing.
"""

from __future__ import annotations

from enginehouse import Driver, Register, hookimpl
from enginehouse_sim.driver import SimDriver

__all__ = ["SimDriver"]


@hookimpl
def register_drivers(register: Register[Driver]) -> None:
    """Offer the ``sim`` driver."""
    register("sim", SimDriver)
