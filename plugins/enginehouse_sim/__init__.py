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
    """Offer ``enginehouse sim`` and ``enginehouse plan``."""
    register("sim", _commands)
    register("plan", _plan)


def _commands() -> Any:
    """Simulate an inference engine, without a GPU and without a model."""
    from enginehouse_sim.commands import sim  # imports the engine's options: only when the command runs

    return sim


def _plan() -> Any:
    """Say how many engines a trace needs for objectives."""
    from enginehouse_sim.plan_command import plan  # imports the engine's options: only when the command runs

    return plan
