"""The addresses that an engine listens on."""

from __future__ import annotations

import asyncio
import socket

from uvicorn import Config
from uvicorn.server import ServerState

from enginehouse_sim.simulator.server.application import Application
from enginehouse_sim.simulator.server.http.connection import SimProtocol

_BACKLOG = 2048


class HttpListener:
    """One address of the application. Port 0 picks a free one.

    Raises ``OSError`` if the address cannot be used.
    """

    def __init__(self, application: Application, host: str, port: int) -> None:
        self._config = Config(
            application,
            http=SimProtocol,
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            proxy_headers=False,
        )
        self._config.load()
        self._state = ServerState()
        self._socket = _bind(host, port)
        self._name: tuple[str, int] = self._socket.getsockname()[:2]
        self._server: asyncio.Server | None = None

    @property
    def address(self) -> str:
        """The address as ``http://127.0.0.1:41234``."""
        host, port = self._name
        return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"

    async def accept(self) -> None:
        """Accept connections, unless it does already."""
        if self._server is None:
            loop = asyncio.get_running_loop()
            self._server = await loop.create_server(self._protocol, sock=self._socket, backlog=_BACKLOG)

    def refuse(self) -> None:
        """Refuse new connections, and keep the port. Requests in progress continue; idle connections are closed."""
        if self._server is not None:
            self._server.close()
            self._server = None
            self._socket = _bind(*self._name)
            for connection in list(self._state.connections):
                connection.shutdown()

    async def close(self) -> None:
        """Stop listening, and abort all requests."""
        if self._server is not None:
            self._server.close()
        for connection in list(self._state.connections):
            connection.transport.abort()
        await asyncio.gather(*self._state.tasks, return_exceptions=True)
        self._socket.close()

    def _protocol(self) -> SimProtocol:
        return SimProtocol(self._config, self._state, {})


def _bind(host: str, port: int) -> socket.socket:
    bound = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        bound.bind((host, port))
    except OSError:
        bound.close()
        raise
    bound.setblocking(False)
    return bound
