"""The world outside of the gateway, as requests meet it."""

from __future__ import annotations

from enginehouse.aio.clock import SYSTEM_CLOCK, Clock
from enginehouse.relay.upstream.connector import Connector, SocketConnector
from enginehouse.relay.upstream.open_files import OpenFiles


class Outside:
    """The clock that requests read, and the way to engines: this machine's by default, or virtual ones.

    ``open_files`` recognises connections that the machine has no room for.
    """

    def __init__(self, clock: Clock = SYSTEM_CLOCK, connector: Connector | None = None) -> None:
        self.clock = clock
        self.connector = connector or SocketConnector()
        self.open_files = OpenFiles(clock.now)
