"""The engine's process, from its settings to the signal that stops it."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, NamedTuple

from enginehouse_sim.simulator.core.build import build_core, kv_shape
from enginehouse_sim.simulator.core.engine_core import EngineCore
from enginehouse_sim.simulator.core.migration import MigratedKv, MigrationSlots
from enginehouse_sim.simulator.server.application import Application
from enginehouse_sim.simulator.server.batching_engine import BatchingEngine, LoopClock
from enginehouse_sim.simulator.server.http import HttpListener
from enginehouse_sim.simulator.server.simulation import Settings, Simulation
from enginehouse_sim.simulator.steps.costs import KvTransfer

if TYPE_CHECKING:
    from enginehouse_sim.simulator.serve.kv_events import KvEventPublisher


class _Beside(NamedTuple):
    """The parts beside the HTTP server. A llumlet needs ``migrated_kv``."""

    publisher: KvEventPublisher | None
    migrated_kv: MigratedKv | None


def run(settings: Settings, announce: Callable[[str], None]) -> None:
    """Serve until SIGTERM or SIGINT; ``announce`` gets one line with the addresses.

    Raises ``OSError`` if an address cannot be used, and ``ConfigError`` for a profile that cannot be used.
    """
    migrated_kv = MigratedKv() if settings.llumlet_port is not None else None
    publisher = _publisher(settings)
    core = build_core(
        settings.core,
        publisher.publish if publisher is not None else None,
        sources=[migrated_kv] if migrated_kv is not None else (),
        kv_bandwidth=settings.kv_bandwidth,
    )
    beside = _Beside(publisher, migrated_kv)
    try:
        import uvloop
    except ImportError:
        asyncio.run(_serve(settings, core, beside, announce))
    else:
        uvloop.run(_serve(settings, core, beside, announce))


def _publisher(settings: Settings) -> KvEventPublisher | None:
    if settings.kv_events is None:
        return None
    from enginehouse_sim.simulator.serve.kv_events import KvEventPublisher  # imports ZeroMQ, an optional dependency

    return KvEventPublisher(settings.kv_events)


async def _serve(settings: Settings, core: EngineCore, beside: _Beside, announce: Callable[[str], None]) -> None:
    stop = asyncio.Event()
    for signal_number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(signal_number, stop.set)
    if not await _wait(stop, settings.start_delay):
        clock = LoopClock()
        engine = BatchingEngine(core, clock)
        simulation = Simulation(settings, engine, clock)
        also: list[str] = []
        try:
            async with AsyncExitStack() as stack:
                if beside.migrated_kv is not None:
                    also.append(
                        "llumlet on " + await stack.enter_async_context(_llumlet(simulation, beside.migrated_kv))
                    )
                if beside.publisher is not None:
                    also.append("KV events on " + await stack.enter_async_context(_publishing(beside.publisher)))
                await _listen(simulation, stop, lambda line: announce(", ".join((line, *also))))
        finally:
            engine.close()


@asynccontextmanager
async def _publishing(publisher: KvEventPublisher) -> AsyncIterator[str]:
    """Answer clients that missed events beside the server; yields the address of the events."""
    answering = asyncio.get_running_loop().create_task(publisher.replay())
    try:
        yield publisher.address
    finally:
        answering.cancel()
        await asyncio.gather(answering, return_exceptions=True)
        publisher.close()


@asynccontextmanager
async def _llumlet(simulation: Simulation, migrated_kv: MigratedKv) -> AsyncIterator[str]:
    """Run a llumlet beside the server; yields its address."""
    from enginehouse_sim.simulator.serve.llumlet import Llumlet  # imports gRPC, an optional dependency

    settings, engine = simulation.settings, simulation.engine
    slots = MigrationSlots(settings.core.constants.token_capacity)
    transfer = KvTransfer(kv_shape(settings.core), settings.kv_bandwidth)
    llumlet = Llumlet(engine, migrated_kv, slots, transfer, simulation.clock)
    port = await llumlet.start(settings.host, settings.llumlet_port or 0)
    simulation.status.set_llumlet(settings.host, port, slots)
    try:
        yield f"{settings.host}:{port}"
    finally:
        await llumlet.stop()


async def _listen(simulation: Simulation, stop: asyncio.Event, announce: Callable[[str], None]) -> None:
    settings = simulation.settings
    ports = [settings.port, *([] if settings.control_port is None else [settings.control_port])]
    serve = Application(simulation).serve
    listeners = [HttpListener(serve, simulation.clock, settings.host, port) for port in ports]
    simulation.faults.listener = listeners[0]
    simulation.status.set_address(listeners[0].address.removeprefix("http://"))
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
