"""What the caller of a virtual gateway simulates: engines, and the clients of requests."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from enginehouse import Driver, Launcher, Migrator
from enginehouse.drivers import LaunchSpec
from enginehouse.launchers import EngineOutput, EngineProcess, Exit, LaunchLine
from enginehouse.relay.response_writer import ResponseWriter


class VirtualBackend(msgspec.Struct, frozen=True, kw_only=True):
    """The configuration of one engine to simulate.

    ``models`` are those that the configuration names; empty if the engine decides. ``spec`` has the settings with which
    the gateway launches it; ``None`` for an engine that runs already.
    """

    name: str
    driver: str
    models: Sequence[str] = ()
    spec: LaunchSpec | None = None


class VirtualEngines(ABC):
    """Simulates the engines of a ``VirtualGateway``."""

    @abstractmethod
    def connect(self, backend: str, connection: asyncio.Protocol) -> None:
        """Call ``connection.connection_made`` with a transport to the engine of ``backend``, which speaks HTTP.

        Raises ``OSError`` if the engine accepts no connection.
        """

    @abstractmethod
    def driver(self, *, bootstraps: bool) -> Driver:
        """Return the driver that asks the engines of one kind; ``bootstraps``: with ``SupportsBootstrap``.

        The configured driver still decides how engines are launched, and whether they hand prompts over.
        """

    @abstractmethod
    async def launch(self, process: VirtualProcess) -> None:
        """Start the engine of ``process``; return when it runs. Raises ``LoadFailed``."""

    async def stop(self, process: VirtualProcess) -> None:
        """Stop the engine of ``process``; return when its memory is free."""

    def migrator(self, type: str, configured: Migrator) -> Migrator:
        """Return a simulated migrator in place of one that would ask real engines."""
        return configured


class VirtualProcess(EngineProcess):
    """A launched engine. ``backend``: its name."""

    def __init__(self, backend: str, address: str, engines: VirtualEngines) -> None:
        self.backend = backend
        self.address = address
        self.handle: Mapping[str, Any] = {}
        self._engines = engines
        self._exited: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    def exit(self, status: int) -> None:
        if not self._exited.done():
            self._exited.set_result(status)

    async def exited(self) -> Exit:
        return Exit(status=await asyncio.shield(self._exited))

    async def memory(self) -> int | None:
        return None

    async def stop(self, timeout: float) -> None:
        if not self._exited.done():
            await self._engines.stop(self)
            self.exit(0)


class VirtualLauncher(Launcher):
    """Launches simulated engines. ``addresses``: by backend."""

    def __init__(self, engines: VirtualEngines, addresses: Mapping[str, str]) -> None:
        self._engines = engines
        self._addresses = addresses

    async def launch(self, name: str, line: LaunchLine, output: EngineOutput) -> EngineProcess:
        process = VirtualProcess(name, self._addresses[name], self._engines)
        await self._engines.launch(process)
        return process

    async def adopt(
        self, name: str, line: LaunchLine, handle: Mapping[str, Any], output: EngineOutput
    ) -> EngineProcess | None:
        return None


class VirtualClient(ABC):
    """Learns what happens to a request, as its client would."""

    @abstractmethod
    def answered(self) -> None:
        """The first piece of the answer has come."""

    @abstractmethod
    def ended(self, status: int, code: str) -> None:
        """The answer has ended. ``code``: of the error that ends it; empty if it is whole."""


class VirtualWriter(ResponseWriter):
    """Brings the answer to a ``VirtualClient``."""

    def __init__(self, client: VirtualClient) -> None:
        self._client = client
        self._status = 0
        self._is_stream = self._answered = False

    def start(self, status: int, lines: bytes, length: int | None) -> None:
        self._status = status
        self._is_stream = length is None

    def write(self, chunk: bytes) -> None:
        if not self._answered and not chunk.startswith(b":"):  # a comment is no part of the answer, but a heartbeat
            self._answered = True
            self._client.answered()

    def finish(self, chunk: bytes) -> None:
        if self._status >= 400:
            self._client.ended(self._status, _error_code(chunk))
            return
        self.write(chunk)
        whole = not self._is_stream or not chunk or b"[DONE]" in chunk
        self._client.ended(self._status, "" if whole else _error_code(chunk.partition(b"data:")[2]))

    def unread(self) -> int:
        return 0

    def abort(self) -> None:
        self._client.ended(self._status, "upstream_error")


class _ErrorFields(msgspec.Struct):
    code: str | None = None


class _ErrorAnswer(msgspec.Struct):
    error: _ErrorFields = msgspec.field(default_factory=_ErrorFields)


def _error_code(body: bytes) -> str:
    try:
        return msgspec.json.decode(body, type=_ErrorAnswer).error.code or "upstream_error"
    except msgspec.MsgspecError:
        return "upstream_error"
