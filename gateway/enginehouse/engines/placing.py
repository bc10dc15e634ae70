"""Finds the place of one engine, and frees it."""

from __future__ import annotations

import logging
from collections.abc import Callable

from enginehouse.aio.timeouts import run_within
from enginehouse.config.schema import ModelSettings
from enginehouse.domain.errors import EnginehouseError
from enginehouse.engines.engine_records import EngineRecords
from enginehouse.engines.ports import Ports, is_own_port
from enginehouse.interfaces.launchers import Launcher
from enginehouse.interfaces.places import EngineNeeds, Place, PlacementOptions

_log = logging.getLogger(__name__)


class Placing:
    """Finds places for the engine ``name``: those of ``launcher``, else one of ``ports``."""

    def __init__(self, name: str, launcher: Launcher | EngineRecords, ports: Ports) -> None:
        self._name = name
        self._launcher = launcher
        self._ports = ports

    async def find(self, model: ModelSettings, options: PlacementOptions, waits: Callable[[str], None]) -> Place:
        """A place for an engine of ``model``. Calls ``waits`` with the reason why there is none yet.

        Raises ``TimeoutError`` after ``place_timeout``, and what the launcher raises.
        """
        needs = EngineNeeds(
            gpus=model.gpus if isinstance(model.gpus, int) else 0,
            memory=model.memory,
            ports=self._ports.limits,
            options=options,
        )
        found = await run_within(model.place_timeout or None, self._launcher.place(self._name, needs, waits))
        return found or Place(port=self._ports.take())

    def claim(self, place: Place) -> None:
        """Note that an engine of an earlier gateway runs in ``place``."""
        if is_own_port(place):
            self._ports.claim(place.port)

    def vacated(self, place: Place) -> None:
        """Note that the engine in ``place`` has ended."""
        if is_own_port(place):
            self._ports.give_back(place.port)

    async def release(self, place: Place) -> None:
        """Free a place in which no engine was launched."""
        self.vacated(place)
        if is_own_port(place):
            return
        try:
            await self._launcher.release(place)
        except EnginehouseError as error:
            _log.error("The place of %s may still be taken: %s", self._name, error)
