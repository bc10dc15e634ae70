"""The world outside of the gateway."""

from __future__ import annotations

import random
from collections.abc import Callable

from enginehouse.aio.clock import SYSTEM_CLOCK, Clock
from enginehouse.interfaces.driver_support import DriverSupport
from enginehouse.interfaces.migrators import Migrator
from enginehouse.relay.engine_memory import EngineMemory
from enginehouse.relay.upstream.connector import Connector, SocketConnector
from enginehouse.relay.upstream.open_files import OpenFiles


class Outside:
    """The clock that requests read, and the way to engines: this machine's by default, or virtual ones.

    ``chance`` returns a number from 0 to 1. ``open_files`` recognises connections that the machine has no room for.
    ``engine_memory``: what is held of engines' answers.
    """

    def __init__(
        self,
        clock: Clock = SYSTEM_CLOCK,
        connector: Connector | None = None,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self.clock = clock
        self.connector = connector or SocketConnector()
        self.chance = chance
        self.open_files = OpenFiles(clock.now)
        self.engine_memory = EngineMemory()

    def driver(self, configured: DriverSupport) -> DriverSupport:
        """How engines of one kind are asked: as the ``configured`` driver does."""
        return configured

    def migrator(self, type: str, configured: Migrator) -> Migrator:
        """How migrations of a ``type`` are carried out: as the ``configured`` migrator does."""
        return configured
