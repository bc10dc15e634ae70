"""The ``sim`` driver and the simulated engine that it launches: ``python -m enginehouse_sim``.

Installing the plugin costs nothing: only ``__main__`` and the commands import the engine.
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
    from enginehouse_sim.commands import sim  # imports the engine's options: only when the command runs

    return sim
