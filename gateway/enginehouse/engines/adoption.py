"""Takes over engines that an earlier gateway left running."""

from __future__ import annotations

import asyncio
import logging

from enginehouse.domain.errors import ConfigError
from enginehouse.engines.engine_records import EngineRecords
from enginehouse.engines.launch_line import fingerprint
from enginehouse.engines.state_file import EngineRecord
from enginehouse.engines.supervisor import Supervisor
from enginehouse.interfaces.launchers import EngineProcess, LaunchLine
from enginehouse.interfaces.places import Place
from enginehouse.telemetry.log_ring import LogRing

_log = logging.getLogger(__name__)

_STRAY_STOP_S = 10.0


async def adopt(
    name: str, record: EngineRecord, supervisor: Supervisor | None, records: EngineRecords
) -> tuple[EngineProcess | None, bool]:
    """Return the process of a recorded engine, ``None`` if it no longer runs, and whether it is still wanted.

    It is not if ``supervisor`` would launch it differently now, or if there is no supervisor: ``stop_stray`` ends it.
    """
    if supervisor is not None:
        supervisor.gpus = record.gpus
    line = _line_now(supervisor, record.place)
    fits = line is not None and fingerprint(line) == record.fingerprint
    line = line or LaunchLine(command=(), port=record.port, bind=record.place.bind, place=record.placed)
    log = supervisor.log if supervisor is not None and fits else LogRing()
    return await records.adopt(name, line, log), fits


async def stop_stray(
    name: str, process: EngineProcess, records: EngineRecords, drained: asyncio.Future[None] | None
) -> None:
    """Stop an engine that is not wanted any more, once the gateway that still uses it has ``drained``."""
    _log.warning("%s still runs and is stopped: its configuration has changed", name)
    if drained is not None:
        await asyncio.shield(drained)
    await process.stop(_STRAY_STOP_S)
    records.ended(process)


def _line_now(supervisor: Supervisor | None, place: Place) -> LaunchLine | None:
    """The current launch line of an engine, ``None`` if it is not configured or cannot be launched."""
    try:
        return supervisor.launch_line(place) if supervisor is not None else None
    except ConfigError:
        return None
