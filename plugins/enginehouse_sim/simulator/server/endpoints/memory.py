"""Memory and pauses: ``/sleep``, ``/wake_up``, ``/pause``, ``/resume`` and their states, ``/reset_prefix_cache``."""

from __future__ import annotations

from enginehouse import InvalidRequest
from enginehouse_sim.simulator.server.http.call import Call
from enginehouse_sim.simulator.server.simulation import Simulation


async def sleep(simulation: Simulation, call: Call) -> None:
    """Abort all requests, and sleep at ``level`` 1 (weights in main memory) or 2 (weights dropped)."""
    level = call.parameter("level", "1")
    if level not in ("1", "2"):
        raise InvalidRequest(f"There is no sleep level {level!r}: use 1 or 2")
    simulation.engine.sleep(int(level))
    await call.answer(b"", b"text/plain")


async def wake_up(simulation: Simulation, call: Call) -> None:
    """End the sleep, and begin the requests that arrived in it."""
    simulation.engine.wake()
    await call.answer(b"", b"text/plain")


async def is_sleeping(simulation: Simulation, call: Call) -> None:
    """Report whether the engine sleeps."""
    await call.json({"is_sleeping": simulation.engine.sleep_level > 0})


async def reset_prefix_cache(simulation: Simulation, call: Call) -> None:
    """Drop all cached prefixes, unless blocks are in use."""
    await call.json({"success": simulation.engine.reset_prefix_cache()})


async def pause(simulation: Simulation, call: Call) -> None:
    """Hold new requests back. ``mode``: abort those under way, wait for them, or keep them where they are."""
    mode = call.parameter("mode", "abort")
    if mode not in ("abort", "wait", "keep"):
        raise InvalidRequest(f"There is no mode {mode!r}: use abort, wait or keep")
    simulation.engine.pause(keep=mode == "keep")
    if mode == "abort":
        simulation.engine.abort_all()
    elif mode == "wait":
        await simulation.engine.drained()
    if mode != "keep" and call.parameter("clear_cache", "true") == "true":
        simulation.engine.reset_prefix_cache()
    await call.json({"status": "paused"})


async def resume(simulation: Simulation, call: Call) -> None:
    """Continue the kept requests, and begin those that were held back."""
    simulation.engine.resume()
    await call.json({"status": "resumed"})


async def is_paused(simulation: Simulation, call: Call) -> None:
    """Report whether requests are held back."""
    await call.json({"is_paused": simulation.engine.is_paused})
