"""Memory: ``/sleep``, ``/wake_up``, ``/is_sleeping``, ``/reset_prefix_cache``."""

from __future__ import annotations

from enginehouse import InvalidRequest
from enginehouse_sim.simulator.server.http.call import Call
from enginehouse_sim.simulator.server.simulation import Simulation


async def sleep(simulation: Simulation, call: Call) -> None:
    """Sleep at ``level`` 1 (weights to main memory) or 2 (weights dropped). Requests are aborted."""
    level = call.parameter("level", "1")
    if level not in ("1", "2"):
        raise InvalidRequest(f"There is no sleep level {level!r}: use 1 or 2")
    simulation.engine.sleep(int(level))
    await call.answer(b"", b"text/plain")


async def wake_up(simulation: Simulation, call: Call) -> None:
    """Wake up."""
    simulation.engine.wake()
    await call.answer(b"", b"text/plain")


async def is_sleeping(simulation: Simulation, call: Call) -> None:
    """Report whether the engine sleeps."""
    await call.json({"is_sleeping": simulation.engine.sleep_level > 0})


async def reset_prefix_cache(simulation: Simulation, call: Call) -> None:
    """Drop all cached prefixes, unless requests run."""
    await call.json({"success": simulation.engine.reset_prefix_cache()})
