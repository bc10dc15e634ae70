"""The orders of a host's queue to its engines, with what goes before and after: pauses, GPUs and measurements."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from enginehouse.domain.errors import ConfigError, EnginehouseError, LoadFailed, NotEnoughMemory
from enginehouse.domain.replica import ReplicaState
from enginehouse.engines.engine import Engine
from enginehouse.engines.start import EngineRun

_log = logging.getLogger(__name__)


@asynccontextmanager
async def prepared(engine: Engine, evict: Sequence[str]) -> AsyncIterator[None]:
    """Have everything for a start that can be had before the replicas ``evict`` are stopped for it.

    Waits for the end of a short pause after failures. Raises ``LoadFailed`` if the engine cannot be started even then.
    The end of the context gives up what was not used.
    """

    def stay() -> Sequence[str]:
        return [replica for replica in engine.listener.running() if replica not in evict]

    if engine.back_off.failures:
        await engine.back_off.wait_out(engine.replica, engine.problem, stay)
    if not evict:
        yield
        return
    try:
        await engine.look_ahead()
        yield
    finally:
        await engine.launches.give_up(engine.name)


async def start(engine: Engine) -> None:
    """Wake or launch an engine, or join its adoption, and wait until it can take requests.

    Raises ``LoadFailed`` if it cannot be started, and at once during the pause after failures. If the launch line
    changes meanwhile, the engine is launched again by the new one.
    """
    while True:
        if engine.before is not None:
            await asyncio.wait({engine.before})
        if engine.is_removed:
            raise LoadFailed(f"'{engine.replica}' is no longer configured")
        version = engine.version
        try:
            await _start(engine)
        except EnginehouseError:
            if version == engine.version:
                raise
        else:
            if version == engine.version:
                return
        await engine.stop()  # it was launched by the line of before


async def _start(engine: Engine) -> None:
    if engine.state is ReplicaState.READY:
        return
    launches = engine.launches
    if engine.back_off.failures:
        engine.back_off.refuse_too_soon(engine.replica, engine.problem, engine.listener.running())
    engine.back_off.crowded_by = ()
    try:
        if launches.strays:
            await asyncio.wait(launches.strays)
        await _prepare_gpus(engine)
        await engine.bring_up()
    except NotEnoughMemory:
        engine.back_off.crowded_by = engine.listener.running()
        raise
    except ConfigError as error:
        raise LoadFailed(f"'{engine.replica}' cannot be launched: {error}") from error
    examination = launches.tasks.start(examine(engine))
    if engine.replica not in launches.learned.measured:
        await examination  # else it was as large, and took as many requests, the last time
    if engine.shown is not ReplicaState.READY:
        raise LoadFailed(f"'{engine.replica}' exited as soon as it was ready: {engine.problem}")


async def _prepare_gpus(engine: Engine) -> None:
    """Choose the GPUs of an engine that is launched, and wait until ended engines have freed them."""
    launches = engine.launches
    if engine.elsewhere or launches.places_gpus:
        return
    if engine.state is not ReplicaState.SLEEPING:
        engine.gpus = await launches.gpus.assign(engine.replica, engine.managed.model.gpus)
    await launches.gpus.until_free(engine.replica, launches.learned.measured.get(engine.replica))


async def examine(engine: Engine) -> None:
    """Measure the memory of an engine that has just become ready, and ask for its limit."""
    try:
        if (run := engine.run) is not None and engine.state is ReplicaState.READY:
            limit, _ = await asyncio.gather(run.concurrency(), measure(engine))
            engine.launches.learned.report(engine.replica, limit)
    finally:  # an engine stays ready even if nobody waits for it any more
        if engine.shown is ReplicaState.READY:
            engine.listener.engine_examined(engine)


async def measure(engine: Engine) -> None:
    """Measure the memory of a ready engine. A failure is logged."""
    if (run := engine.run) is not None and engine.shown is ReplicaState.READY:
        await engine.launches.learned.measure(engine.replica, run.process, engine.footprint())


async def evict(engine: Engine) -> None:
    """Free the memory of an engine: by sleep if its model says so and that frees most of it, else by its end."""
    run = engine.run
    if run is not None and engine.state is ReplicaState.READY and not engine.elsewhere:
        await engine.sleep_or_stop(run, engine.managed.model.evict)
        if engine.is_asleep:
            if await engine.launches.learned.frees_by_sleep(engine.replica, run.process):
                return
            _log.info("%s keeps its memory asleep: it is stopped to make room", engine.replica)
    await engine.stop()


def rest(engine: Engine) -> None:
    """Begin to put a ready engine that is idle to sleep or, where model or driver do not allow it, to stop it.

    The engine is no longer ready when this returns.
    """
    if (run := engine.run) is not None and engine.state is ReplicaState.READY:
        end = engine.sleep_or_stop(run, engine.managed.model.idle)
        engine.launches.tasks.start(_rested(engine, run, end))


async def _rested(engine: Engine, run: EngineRun, end: asyncio.Future[None]) -> None:
    await end
    if engine.is_asleep:
        await engine.launches.learned.frees_by_sleep(engine.replica, run.process)
    if not engine.is_removed:
        engine.listener.engine_exited(engine)
