"""The places of engines, as their launchers find them, and the ports of this machine for all others."""

from __future__ import annotations

import logging
import random
import socket
from collections.abc import Callable

from enginehouse.aio.timeouts import run_within
from enginehouse.config.schema import ModelSettings
from enginehouse.domain.errors import EnginehouseError, LoadFailed
from enginehouse.engines.engine_records import EngineRecords
from enginehouse.engines.launch_line import is_own_port
from enginehouse.interfaces.launchers import Launcher
from enginehouse.interfaces.places import LOOPBACK, EngineNeeds, Place, PlacementOptions

_log = logging.getLogger(__name__)

FIRST, LAST = 20_000, 32_767
"""Below the range of ephemeral ports, since an outgoing connection could take such a port before the engine does."""


class Ports:
    """Hands out free loopback ports in turn, so that a port just given back is not used again at once."""

    def __init__(self, first: int = FIRST, last: int = LAST, taken: set[int] | None = None) -> None:
        self._taken: set[int] = set() if taken is None else taken
        self.limit_to(first, last)

    @property
    def limits(self) -> tuple[int, int]:
        """The first and the last port."""
        return self._range[0], self._range[-1]

    def within(self, first: int, last: int) -> Ports:
        """Other ports of this machine, of which none is handed out while it is taken here."""
        return Ports(first, last, self._taken)

    def limit_to(self, first: int, last: int) -> None:
        """Hand out these ports from now on."""
        self._range = range(first, last + 1)
        # at random, because other gateways on this machine may begin at the same time
        self._next = random.randrange(len(self._range))

    def take(self) -> int:
        """Return a free port that was not handed out. Raises ``LoadFailed`` if there is none."""
        for _ in self._range:
            port = self._range[self._next]
            self._next = (self._next + 1) % len(self._range)
            if port not in self._taken and _is_free(port):
                self._taken.add(port)
                return port
        first, last = self.limits
        raise LoadFailed(f"No free port between {first} and {last} for another engine: widen hosts.*.ports")

    def claim(self, port: int) -> None:
        """Mark ``port`` as taken by an engine that already runs."""
        self._taken.add(port)

    def give_back(self, port: int) -> None:
        """Allow ``port`` to be handed out again."""
        self._taken.discard(port)


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind((LOOPBACK, port))
        except OSError:
            return False
    return True


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
