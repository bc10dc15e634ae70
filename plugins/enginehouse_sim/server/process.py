"""The engine's process: from its settings to the signal that ends it."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable

from enginehouse_sim.clock import LoopClock
from enginehouse_sim.server.application import Application
from enginehouse_sim.server.listener import Listener
from enginehouse_sim.server.paced_engine import PacedEngine
from enginehouse_sim.server.settings import Settings
from enginehouse_sim.server.simulation import Simulation


def run(settings: Settings, announce: Callable[[str], None]) -> None:
    """Serve until SIGTERM or SIGINT; ``announce`` is told where, in one line.

    Raises ``OSError`` when an address cannot be had.
    """
    try:
        import uvloop
    except ImportError:
        asyncio.run(_serve(settings, announce))
    else:
        uvloop.run(_serve(settings, announce))


async def _serve(settings: Settings, announce: Callable[[str], None]) -> None:
    stop = asyncio.Event()
    for signal_number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(signal_number, stop.set)
    if not await _wait(stop, settings.start_delay):
        clock = LoopClock()
        simulation = Simulation(settings, PacedEngine(settings, clock), clock)
        await _listen(simulation, stop, announce)


async def _listen(simulation: Simulation, stop: asyncio.Event, announce: Callable[[str], None]) -> None:
    settings = simulation.settings
    application = Application(simulation)
    listeners = [Listener(application, settings.host, settings.port)]
    simulation.faults.door = listeners[0]
    if settings.control_port is not None:
        listeners.append(Listener(application, settings.host, settings.control_port))
    try:
        for listener in listeners:
            await listener.accept()
        words = zip(("listening", "control"), listeners, strict=False)
        announce(", ".join(f"{word} on {listener.address}" for word, listener in words))
        await stop.wait()
    finally:
        for listener in listeners:
            await listener.close()


async def _wait(stop: asyncio.Event, seconds: float) -> bool:
    try:
        await asyncio.wait_for(stop.wait(), seconds)
    except asyncio.TimeoutError:
        return False
    return True
