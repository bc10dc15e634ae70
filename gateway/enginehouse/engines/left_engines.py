"""The engines on a host that another gateway has left running, put to sleep or woken."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from contextlib import suppress

from enginehouse.domain.errors import ConfigError
from enginehouse.engines.engine import Engine
from enginehouse.engines.launch_line import fingerprint
from enginehouse.engines.launches import Launches
from enginehouse.engines.state_file import EngineRecord, TakenBack
from enginehouse.interfaces.launchers import EngineProcess, LaunchLine
from enginehouse.telemetry.log_ring import LogRing

_log = logging.getLogger(__name__)

_STRAY_STOP_S = 10.0
_FIRST_LOOK_S = 2.0
"""The time for which a starting gateway waits for adopted engines. Slower ones become ready later."""


class LeftEngines:
    """Finds them by their records, and matches them with ``engines``: those of the host, by replica, live."""

    def __init__(self, launches: Launches, engines: Mapping[str, Engine]) -> None:
        self._launches = launches
        self._engines = engines

    @property
    def records(self) -> Mapping[str, EngineRecord]:
        """The records of the host, by name."""
        records = self._launches.state_file.records
        return {name: record for name, record in records.items() if record.host == self._launches.host}

    async def take_over(self, drained: asyncio.Future[None] | None = None) -> None:
        """Adopt those that an earlier gateway has left.

        Those that are no longer configured, or configured differently, are stopped before any is started: at once or,
        if the earlier gateway still uses them, when it has ``drained``.
        """
        if self._launches.state_file.is_lost:
            await self._launches.recover()
        named = self._named()
        await asyncio.gather(
            *(self._adopt(name, record, named.get(name), drained) for name, record in self.records.items())
        )
        if adoptions := [engine.before for engine in self._engines.values() if engine.before is not None]:
            await asyncio.wait(adoptions, timeout=_FIRST_LOOK_S)

    async def take_back(self, done: TakenBack) -> None:
        """Undo, before any engine is started, what a gateway has ``done`` that failed to take over.

        Those that it has launched are stopped, and those that it has woken sleep again.
        """
        launches, records, named = self._launches, self.records, self._named()
        for name in sorted(done.woken):
            if (engine := named.get(name)) is not None:
                engine.sleep_again()
        for name in done.launched:
            if (record := records.get(name)) is None:
                continue
            process = await launches.adopt(name, _line_of(record, named.get(name)), LogRing())
            if process is not None:
                _log.warning("%s is stopped: the gateway that has launched it has not taken over", name)
                await launches.end(process, _STRAY_STOP_S)

    def _named(self) -> Mapping[str, Engine]:
        return {engine.name: engine for engine in self._engines.values()}

    async def _adopt(
        self, name: str, record: EngineRecord, engine: Engine | None, drained: asyncio.Future[None] | None
    ) -> None:
        launches, line = self._launches, _line_of(record, engine)
        if engine is not None:
            engine.launch.gpus = record.gpus
        wanted = engine if fingerprint(line) == record.fingerprint else None
        process = await launches.adopt(name, line, LogRing() if wanted is None else wanted.log)
        if process is None:
            return
        if wanted is not None:
            _log.info("%s still runs and is taken over", name)
            launches.gpus.adopt(wanted.replica, record.gpus)
            wanted.adopt(process, record.place, drained)
        elif drained is None:
            await self._stop_stray(name, process, drained)
        else:
            launches.strays.append(launches.tasks.start(self._stop_stray(name, process, drained)))

    async def _stop_stray(self, name: str, process: EngineProcess, drained: asyncio.Future[None] | None) -> None:
        """Stop an engine that is not wanted any more, once the gateway that still uses it has ``drained``."""
        _log.warning("%s still runs and is stopped: its configuration has changed", name)
        if drained is not None:
            await asyncio.shield(drained)
        await self._launches.stop(process, _STRAY_STOP_S)


def _line_of(record: EngineRecord, engine: Engine | None) -> LaunchLine:
    """The launch line of now in the place of ``record``; one without a command if there is none any more."""
    if engine is not None:
        with suppress(ConfigError):
            return engine.launch.line.line(record.place, record.gpus)
    return LaunchLine(command=(), port=record.port, bind=record.place.bind, place=record.placed)
