"""The engine's process: from its settings to the signal that ends it."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import msgspec

from enginehouse_sim.clock import LoopClock
from enginehouse_sim.core.build import build_core, kv_shape
from enginehouse_sim.core.engine_core import EngineCore
from enginehouse_sim.llumlet.arrivals import Arrivals
from enginehouse_sim.server.application import Application
from enginehouse_sim.server.batching_engine import BatchingEngine
from enginehouse_sim.server.listener import Listener
from enginehouse_sim.server.settings import Settings
from enginehouse_sim.server.simulation import Simulation
from enginehouse_sim.server.traffic import Traffic
from enginehouse_sim.steps.transfer import KvTransfer


def run(settings: Settings, announce: Callable[[str], None]) -> None:
    """Serve until SIGTERM or SIGINT; ``announce`` is told where, in one line.

    Raises ``OSError`` when an address cannot be had, and ``ConfigError`` for a profile that cannot be used.
    """
    constants = msgspec.structs.replace(settings.core.constants, log_stats=False)  # whoever wants figures asks for them
    core_settings = msgspec.structs.replace(settings.core, constants=constants)
    arrivals = Arrivals() if settings.llumlet_port is not None else None
    core = build_core(core_settings, sources=[arrivals] if arrivals is not None else ())
    try:
        import uvloop
    except ImportError:
        asyncio.run(_serve(settings, core, arrivals, announce))
    else:
        uvloop.run(_serve(settings, core, arrivals, announce))


async def _serve(
    settings: Settings, core: EngineCore, arrivals: Arrivals | None, announce: Callable[[str], None]
) -> None:
    stop = asyncio.Event()
    for signal_number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(signal_number, stop.set)
    if not await _wait(stop, settings.start_delay):
        clock = LoopClock()
        engine = BatchingEngine(core, clock)
        simulation = Simulation(settings, engine, clock)
        try:
            if arrivals is None:
                await _listen(simulation, stop, announce)
            else:
                async with _llumlet(simulation, arrivals) as address:
                    await _listen(simulation, stop, lambda line: announce(f"{line}, llumlet on {address}"))
        finally:
            engine.close()


@asynccontextmanager
async def _llumlet(simulation: Simulation, arrivals: Arrivals) -> AsyncIterator[str]:
    """Have requests moved on command; where those are taken."""
    from enginehouse_sim.llumlet.service import Llumlet  # brings gRPC in, which others do without

    settings, engine = simulation.settings, simulation.engine
    simulation.status.traffic = traffic = Traffic(settings.core.constants.token_capacity)
    transfer = KvTransfer(kv_shape(settings.core), settings.kv_bandwidth)
    llumlet = Llumlet(engine, arrivals, traffic, transfer, simulation.clock)
    port = await llumlet.start(settings.host, settings.llumlet_port or 0)
    try:
        yield f"{settings.host}:{port}"
    finally:
        await llumlet.stop()


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
