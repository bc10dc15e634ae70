"""Giving memory back, and taking it again: ``/sleep``, ``/wake_up``, ``/is_sleeping``, ``/reset_prefix_cache``."""

from __future__ import annotations

from enginehouse import InvalidRequest
from enginehouse_sim.server.call import Call
from enginehouse_sim.server.simulation import Simulation


async def sleep(simulation: Simulation, call: Call) -> None:
    """Go to sleep, at ``level`` 1 (weights to main memory) or 2 (weights dropped). What runs or waits is aborted."""
    level = call.parameter("level", "1")
    if level not in ("1", "2"):
        raise InvalidRequest(f"There is no sleep level {level!r}: use 1 or 2")
    simulation.engine.sleep(int(level))
    await call.answer(b"", b"text/plain")


async def wake_up(simulation: Simulation, call: Call) -> None:
    """Run again."""
    simulation.engine.wake()
    await call.answer(b"", b"text/plain")


async def is_sleeping(simulation: Simulation, call: Call) -> None:
    """Whether it sleeps."""
    await call.json({"is_sleeping": simulation.engine.sleep_level > 0})


async def reset_prefix_cache(simulation: Simulation, call: Call) -> None:
    """Forget all cached prefixes; nothing is done while requests run."""
    await call.json({"success": simulation.engine.reset_prefix_cache()})
