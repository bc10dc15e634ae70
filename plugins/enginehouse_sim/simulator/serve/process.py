"""The engine's process, from its settings to the signal that stops it."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable
from contextlib import AsyncExitStack

from enginehouse_sim.simulator.core.build import build_core, kv_shape
from enginehouse_sim.simulator.core.migration import MigratedKv, MigrationSlots
from enginehouse_sim.simulator.server.application import Application
from enginehouse_sim.simulator.server.batching_engine import BatchingEngine, LoopClock
from enginehouse_sim.simulator.server.http import HttpListener
from enginehouse_sim.simulator.server.simulation import Settings, Simulation
from enginehouse_sim.simulator.steps.costs import KvTransfer


def run(settings: Settings, announce: Callable[[str], None]) -> None:
    """Serve until SIGTERM or SIGINT; ``announce`` gets one line with the addresses.

    Raises ``OSError`` if an address cannot be used, and ``ConfigError`` for a profile that cannot be used.
    """
    try:
        import uvloop
    except ImportError:
        asyncio.run(_serve(settings, announce))
    else:
        uvloop.run(_serve(settings, announce))


async def _serve(settings: Settings, announce: Callable[[str], None]) -> None:
    loop, stop = asyncio.get_running_loop(), asyncio.Event()
    for signal_number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(signal_number, stop.set)
    async with AsyncExitStack() as stack:
        migrated_kv = MigratedKv() if settings.llumlet_port is not None else None
        publisher = None
        if settings.kv_events is not None:
            from enginehouse_sim.simulator.serve.kv_events import KvEventPublisher  # imports ZeroMQ, which is optional

            publisher = KvEventPublisher(settings.kv_events)
            stack.callback(publisher.close)
        core = build_core(
            settings.core,
            publisher.publish if publisher is not None else None,
            sources=[migrated_kv] if migrated_kv is not None else (),
            kv_bandwidth=settings.kv_bandwidth,
        )
        if await _is_set(stop, settings.start_delay):
            return
        engine = BatchingEngine(core, LoopClock())
        stack.callback(engine.close)
        simulation, beside = Simulation(settings, engine), []
        if migrated_kv is not None:
            from enginehouse_sim.simulator.serve.llumlet import Llumlet  # imports gRPC, which is optional

            slots = MigrationSlots(settings.core.constants.token_capacity)
            transfer = KvTransfer(kv_shape(settings.core), settings.kv_bandwidth)
            llumlet = Llumlet(engine, migrated_kv, slots, transfer)
            port = await llumlet.start(settings.host, settings.llumlet_port or 0)
            stack.push_async_callback(llumlet.stop)
            simulation.slots = slots
            simulation.move_from(settings.host, port)
            beside.append(f"llumlet on {settings.host}:{port}")
        if publisher is not None:
            replaying = loop.create_task(publisher.replay())
            stack.push_async_callback(_end, replaying)
            beside.append(f"KV events on {publisher.address}")
        serve, listening = Application(simulation).serve, []
        for word, number in (("listening", settings.port), ("control", settings.control_port)):
            if number is not None:
                try:
                    listener = HttpListener(serve, settings.host, number)
                except OSError as error:
                    raise OSError(f"cannot listen on {settings.host}, port {number}: {error}") from error
                stack.push_async_callback(listener.close)
                await listener.accept()
                listening.append((word, listener))
        simulation.listen_at(listening[0][1])
        announce(", ".join([*(f"{word} on {each.address}" for word, each in listening), *beside]))
        await stop.wait()


async def _end(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def _is_set(stop: asyncio.Event, seconds: float) -> bool:
    """Whether ``stop`` is set within so many ``seconds``."""
    try:
        await asyncio.wait_for(stop.wait(), seconds)
    except asyncio.TimeoutError:
        return False
    return True
