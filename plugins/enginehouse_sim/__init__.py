"""The ``sim`` driver and the simulated engine that it launches: ``python -m enginehouse_sim``.

The server's parts are imported by ``__main__`` alone, so that having the plugin installed costs nothing.
"""

from __future__ import annotations

from typing import Any

from enginehouse import Driver, Register, hookimpl
from enginehouse_sim.driver import SimDriver

__all__ = ["SimDriver"]


@hookimpl
def register_drivers(register: Register[Driver]) -> None:
    """Offer the ``sim`` driver."""
    register("sim", SimDriver)


@hookimpl
def register_commands(register: Register[Any]) -> None:
    """Offer ``enginehouse sim``."""
    register("sim", _commands)


def _commands() -> Any:
    from enginehouse_sim.commands import sim  # only for somebody who asks for commands

    return sim
