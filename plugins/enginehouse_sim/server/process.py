"""The engine's process: from its settings to the signal that ends it."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable

import msgspec

from enginehouse_sim.clock import LoopClock
from enginehouse_sim.core.build import build_core
from enginehouse_sim.core.engine_core import EngineCore
from enginehouse_sim.server.application import Application
from enginehouse_sim.server.batching_engine import BatchingEngine
from enginehouse_sim.server.listener import Listener
from enginehouse_sim.server.settings import Settings
from enginehouse_sim.server.simulation import Simulation


def run(settings: Settings, announce: Callable[[str], None]) -> None:
    """Serve until SIGTERM or SIGINT; ``announce`` is told where, in one line.

    Raises ``OSError`` when an address cannot be had, and ``ConfigError`` for a profile that cannot be used.
    """
    constants = msgspec.structs.replace(settings.core.constants, log_stats=False)  # whoever wants figures asks for them
    core = build_core(msgspec.structs.replace(settings.core, constants=constants))
    try:
        import uvloop
    except ImportError:
        asyncio.run(_serve(settings, core, announce))
    else:
        uvloop.run(_serve(settings, core, announce))


async def _serve(settings: Settings, core: EngineCore, announce: Callable[[str], None]) -> None:
    stop = asyncio.Event()
    for signal_number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(signal_number, stop.set)
    if not await _wait(stop, settings.start_delay):
        clock = LoopClock()
        engine = BatchingEngine(core, clock)
        try:
            await _listen(Simulation(settings, engine, clock), stop, announce)
        finally:
            engine.close()


async def _listen(simulation: Simulation, stop: asyncio.Event, announce: Callable[[str], None]) -> None:
    settings = simulation.settings
    application = Application(simulation)
    listeners = [Listener(application, settings.host, settings.port)]
    simulation.faults.door = listeners[0]
    simulation.status.listens_at(listeners[0].address.removeprefix("http://"))
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
