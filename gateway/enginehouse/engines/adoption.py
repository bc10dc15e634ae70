"""Takes over engines that an earlier gateway left running."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping

from enginehouse.domain.errors import ConfigError, EnginehouseError
from enginehouse.engines.engine import Engine
from enginehouse.engines.launch_line import fingerprint
from enginehouse.engines.launches import Launches
from enginehouse.engines.state_file import EngineRecord
from enginehouse.interfaces.launchers import EngineProcess, LaunchLine
from enginehouse.interfaces.places import Place
from enginehouse.telemetry.log_ring import LogRing

_log = logging.getLogger(__name__)

_STRAY_STOP_S = 10.0
_FIRST_LOOK_S = 2.0
"""The time for which a starting gateway waits for adopted engines. Slower ones become ready later."""


async def take_over(
    launches: Launches, engines: Mapping[str, Engine], drained: asyncio.Future[None] | None = None
) -> None:
    """Take over the engines of this host that an earlier gateway left running.

    Those that are no longer configured, or configured differently, are stopped before any is started: at once or, if
    the earlier gateway still uses them, when it has ``drained``.
    """
    state_file = launches.state_file
    if state_file.is_lost:
        try:
            await launches.recover()
        except EnginehouseError as error:
            _log.error("Host '%s' cannot be asked for engines that still run: %s", launches.host, error)
    named = {engine.name: engine for engine in engines.values()}
    records = [(name, record) for name, record in state_file.records.items() if record.host == launches.host]
    await asyncio.gather(*(_take_over(launches, name, record, named.get(name), drained) for name, record in records))
    if adoptions := [engine.before for engine in engines.values() if engine.before is not None]:
        await asyncio.wait(adoptions, timeout=_FIRST_LOOK_S)


async def _take_over(
    launches: Launches, name: str, record: EngineRecord, engine: Engine | None, drained: asyncio.Future[None] | None
) -> None:
    line = None
    if engine is not None:
        engine.gpus = record.gpus
        line = _line_now(engine, record.place)
    wanted = engine if line is not None and fingerprint(line) == record.fingerprint else None
    line = line or LaunchLine(command=(), port=record.port, bind=record.place.bind, place=record.placed)
    process = await launches.adopt(name, line, LogRing() if wanted is None else wanted.log)
    if process is None:
        return
    if wanted is not None:
        _log.info("%s still runs and is taken over", name)
        launches.gpus.adopt(wanted.replica, record.gpus)
        wanted.adopt(process, record.place)
    elif drained is None:
        await _stop_stray(launches, name, process, drained)
    else:
        launches.strays.append(launches.tasks.start(_stop_stray(launches, name, process, drained)))


async def _stop_stray(
    launches: Launches, name: str, process: EngineProcess, drained: asyncio.Future[None] | None
) -> None:
    """Stop an engine that is not wanted any more, once the gateway that still uses it has ``drained``."""
    _log.warning("%s still runs and is stopped: its configuration has changed", name)
    if drained is not None:
        await asyncio.shield(drained)
    await launches.ownership.stop(process, _STRAY_STOP_S)
    launches.ended(process)


def _line_now(engine: Engine, place: Place) -> LaunchLine | None:
    """The current launch line of an engine, ``None`` if it cannot be launched."""
    try:
        return engine.line.line(place, engine.gpus)
    except ConfigError:
        return None
