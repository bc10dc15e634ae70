"""The world outside of the gateway: its clock, the addresses of engines, the way to them, the limit of open files."""

from __future__ import annotations

import asyncio
import errno
import logging
import random
import ssl
from collections.abc import Callable, Coroutine
from typing import Any
from urllib.parse import urlsplit

import msgspec

from enginehouse.aio.clock import SYSTEM_CLOCK, Clock
from enginehouse.domain.errors import Overloaded
from enginehouse.interfaces.driver_support import DriverSupport
from enginehouse.relay.engine_memory import EngineMemory

_log = logging.getLogger("enginehouse.relay")

_NO_FILES = frozenset({errno.EMFILE, errno.ENFILE})
_WARN_EVERY_S = 60.0


class Origin(msgspec.Struct, frozen=True):
    """The address of an engine; ``prefix`` is the path before ``/v1``. Without a ``host`` the engine does not run.

    ``authority``: the value of a ``Host`` header. ``url``: all of the address; empty if the engine does not run.
    """

    host: str
    port: int
    tls: bool
    prefix: str
    authority: str
    url: str

    @classmethod
    def parse(cls, url: str) -> Origin:
        """The origin of ``http://host:port/prefix``."""
        parts = urlsplit(url)
        host, tls, prefix = parts.hostname or "", parts.scheme == "https", parts.path.rstrip("/")
        usual = 443 if tls else 80
        port, shown = parts.port or usual, f"[{host}]" if ":" in host else host
        whole = f"{'https' if tls else 'http'}://{shown}:{port}{prefix}" if host else ""
        return cls(host, port, tls, prefix, shown if port == usual else f"{shown}:{port}", whole)


class Connector:
    """The way from the gateway to engines: by TCP, through the running event loop."""

    def connect(
        self, protocol: asyncio.Protocol, origin: Origin, tls: ssl.SSLContext | None
    ) -> Coroutine[Any, Any, object]:
        """Connect ``protocol`` to ``origin``, encrypted by ``tls`` if it is given.

        Raises ``OSError``, and ``UnicodeError`` for a name that no host can have.
        """
        return asyncio.get_running_loop().create_connection(lambda: protocol, origin.host, origin.port, ssl=tls)


class Outside:
    """The clock that requests read, and the way to engines: this machine's by default, or virtual ones.

    ``chance`` returns a number from 0 to 1. ``engine_memory``: what is held of engines' answers.
    """

    def __init__(
        self,
        clock: Clock = SYSTEM_CLOCK,
        connector: Connector | None = None,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self.clock = clock
        self.connector = connector or Connector()
        self.chance = chance
        self.engine_memory = EngineMemory()
        self._warned_at = -_WARN_EVERY_S
        self._tls: dict[bool, ssl.SSLContext] = {}

    def tls(self, verify: bool) -> ssl.SSLContext:
        """How connections are encrypted, which all backends share: to read the authorities takes some 10 ms."""
        if (context := self._tls.get(verify)) is None:
            context = self._tls[verify] = ssl.create_default_context()
            if not verify:
                context.check_hostname = False
                context.verify_mode = ssl.CERT_NONE
        return context

    def shortage(self, error: BaseException) -> Overloaded | None:
        """The answer to a request for which no connection could be opened, if the machine has no room for one.

        ``None`` if ``error`` has another cause. The log names the shortage once a minute.
        """
        if not isinstance(error, OSError) or error.errno not in _NO_FILES:
            return None
        now = self.clock.now()
        if now - self._warned_at >= _WARN_EVERY_S:
            self._warned_at = now
            _log.warning("The gateway can open no more connections: %s. Raise its limit (ulimit -n)", error.strerror)
        return Overloaded(f"The gateway can open no more connections ({error.strerror}): raise its limit of open files")

    def driver(self, configured: DriverSupport) -> DriverSupport:
        """How engines of one kind are asked: as the ``configured`` driver does."""
        return configured

    def migrator(self, type: str, configured: Any) -> Any:
        """How migrations of a ``type`` are carried out: as the ``configured`` migrator does."""
        return configured
