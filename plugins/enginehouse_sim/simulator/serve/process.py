"""The engine's process, from its settings to the signal that stops it."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import msgspec

from enginehouse_sim.simulator.core.build import build_core, kv_shape
from enginehouse_sim.simulator.core.engine_core import EngineCore
from enginehouse_sim.simulator.llumlet.migrated_kv import MigratedKv
from enginehouse_sim.simulator.server.application import Application
from enginehouse_sim.simulator.server.engine.batching_engine import BatchingEngine
from enginehouse_sim.simulator.server.engine.clock import LoopClock
from enginehouse_sim.simulator.server.http.listener import HttpListener
from enginehouse_sim.simulator.server.settings import Settings
from enginehouse_sim.simulator.server.simulation import Simulation
from enginehouse_sim.simulator.server.telemetry.migration_slots import MigrationSlots
from enginehouse_sim.simulator.steps.transfer import KvTransfer


def run(settings: Settings, announce: Callable[[str], None]) -> None:
    """Serve until SIGTERM or SIGINT; ``announce`` gets one line with the addresses.

    Raises ``OSError`` if an address cannot be used, and ``ConfigError`` for a profile that cannot be used.
    """
    constants = msgspec.structs.replace(settings.core.constants, log_stats=False)  # /metrics computes them on demand
    core_settings = msgspec.structs.replace(settings.core, constants=constants)
    migrated_kv = MigratedKv() if settings.llumlet_port is not None else None
    core = build_core(core_settings, sources=[migrated_kv] if migrated_kv is not None else ())
    try:
        import uvloop
    except ImportError:
        asyncio.run(_serve(settings, core, migrated_kv, announce))
    else:
        uvloop.run(_serve(settings, core, migrated_kv, announce))


async def _serve(
    settings: Settings, core: EngineCore, migrated_kv: MigratedKv | None, announce: Callable[[str], None]
) -> None:
    stop = asyncio.Event()
    for signal_number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(signal_number, stop.set)
    if not await _wait(stop, settings.start_delay):
        clock = LoopClock()
        engine = BatchingEngine(core, clock)
        simulation = Simulation(settings, engine, clock)
        try:
            if migrated_kv is None:
                await _listen(simulation, stop, announce)
            else:
                async with _llumlet(simulation, migrated_kv) as address:
                    await _listen(simulation, stop, lambda line: announce(f"{line}, llumlet on {address}"))
        finally:
            engine.close()


@asynccontextmanager
async def _llumlet(simulation: Simulation, migrated_kv: MigratedKv) -> AsyncIterator[str]:
    """Run a llumlet beside the server; yields its address."""
    from enginehouse_sim.simulator.llumlet.service import Llumlet  # imports gRPC, an optional dependency

    settings, engine = simulation.settings, simulation.engine
    simulation.status.migration_slots = migration_slots = MigrationSlots(settings.core.constants.token_capacity)
    transfer = KvTransfer(kv_shape(settings.core), settings.kv_bandwidth)
    llumlet = Llumlet(engine, migrated_kv, migration_slots, transfer, simulation.clock)
    port = await llumlet.start(settings.host, settings.llumlet_port or 0)
    simulation.status.set_llumlet(settings.host, port)
    try:
        yield f"{settings.host}:{port}"
    finally:
        await llumlet.stop()


async def _listen(simulation: Simulation, stop: asyncio.Event, announce: Callable[[str], None]) -> None:
    settings = simulation.settings
    application = Application(simulation)
    listeners = [HttpListener(application, settings.host, settings.port)]
    simulation.faults.listener = listeners[0]
    simulation.status.set_address(listeners[0].address.removeprefix("http://"))
    if settings.control_port is not None:
        listeners.append(HttpListener(application, settings.host, settings.control_port))
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
