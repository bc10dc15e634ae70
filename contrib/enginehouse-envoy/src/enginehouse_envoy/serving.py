"""The life of all listeners."""

from __future__ import annotations

import asyncio
import gc
import signal
import socket
import ssl
from collections.abc import Mapping
from contextlib import nullcontext
from typing import NamedTuple, cast

import click
import grpc
import uvicorn

from enginehouse import ConfigError
from enginehouse.picking import Picker
from enginehouse_envoy.access_log import AccessLogService, OpenPicks
from enginehouse_envoy.addresses import Addresses, check_urls
from enginehouse_envoy.authz import AuthzWriter
from enginehouse_envoy.certificates import certificate
from enginehouse_envoy.ext_proc import PickerService
from enginehouse_envoy.health import Health

_REFRESH_S = 10.0
_GRACE_S = 5.0
"""How long streams may go on after the picker has stopped."""
_WAITING = 4096
"""How many connections may wait to be accepted."""
_MOST = 2**31 - 1
_UNLIMITED = [
    ("grpc.max_receive_message_length", -1),  # bodies with images are larger than 4 MiB; server.max_body limits them
    ("grpc.max_send_message_length", -1),
    ("grpc.server.max_pending_requests", _MOST),  # gRPC cancels some of a burst of more than 1000 streams
    ("grpc.server.max_pending_requests_hard_limit", _MOST),
    ("grpc.so_reuseport", 0),
]


class Listeners(NamedTuple):
    """Where to listen, and how to pick. A port of ``None`` is not opened; 0 picks one. ``socket``: a path, or empty."""

    host: str
    http_port: int
    socket: str
    grpc_port: int
    health_port: int | None
    port: int | None
    tls: str
    watches: bool
    fallbacks: int
    priorities: Mapping[str, int]


async def serve(picker: Picker, listeners: Listeners) -> None:
    """Serve until SIGINT or SIGTERM. Raises ``ConfigError`` for an address in use."""
    check_urls(picker.urls)
    serving = _Serving(picker, listeners)
    try:
        await serving.open()
        await serving.until_signal()
    finally:
        await serving.close()


class _Serving:
    def __init__(self, picker: Picker, listeners: Listeners) -> None:
        self._picker = picker
        self._listeners = listeners
        self._addresses = Addresses()
        self._picks = OpenPicks()
        self._writer = AuthzWriter(picker, self._picks, self._addresses, listeners.priorities)
        self._health = Health()
        self._stopped = asyncio.Event()
        self._servers: list[grpc.aio.Server] = []
        self._http: list[asyncio.Server] = []
        self._tasks: list[asyncio.Task[None]] = []
        self._pages: uvicorn.Server | None = None

    async def open(self) -> None:
        listeners = self._listeners
        made = certificate(listeners.tls) if listeners.tls else None
        await self._health.set_ready(False)
        grpc_port = await self._open_grpc(made and grpc.ssl_server_credentials([(made.key, made.chain)]))
        http_port = await self._open_http(made.context() if made else None)
        health_port = await self._open_health()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self._stopped.set)
        await self._picker.open()
        loop.add_signal_handler(signal.SIGHUP, self._picker.reload)
        await self._addresses.refresh(self._picker.urls)
        self._tasks.append(asyncio.ensure_future(self._keep_refreshing()))
        pages_port = self._open_pages()
        await self._health.set_ready(True)
        gc.freeze()  # requests leave no reference cycles: collections took a third of the picker's time
        gc.set_threshold(50_000, 20, 50)
        parts = [f"ext_authz {listeners.host}:{http_port}", f"ext_proc {listeners.host}:{grpc_port}"]
        if health_port:
            parts.append(f"health {listeners.host}:{health_port}")
        if pages_port:
            parts.append(f"pages {listeners.host}:{pages_port}")
        click.echo(f"Enginehouse picks endpoints for Envoy: {', '.join(parts)}")

    async def until_signal(self) -> None:
        await self._stopped.wait()
        self._picker.leave()
        await self._health.set_ready(False)
        await asyncio.sleep(self._picker.drain_delay)

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        if self._pages is not None:
            self._pages.should_exit = True
        for http in self._http:
            http.close()
        await self._picker.close()
        self._writer.close()
        await asyncio.gather(*(server.stop(_GRACE_S) for server in self._servers))

    async def _open_grpc(self, credentials: grpc.ServerCredentials | None) -> int:
        listeners = self._listeners
        service = PickerService(
            self._picker,
            self._picks,
            self._addresses,
            watches=listeners.watches,
            fallbacks=listeners.fallbacks,
            priorities=listeners.priorities,
        )
        server = grpc.aio.server(options=_UNLIMITED)
        server.add_generic_rpc_handlers((service.handler(), AccessLogService(self._picks).handler()))
        self._health.add_to(server)
        return await self._start(server, listeners.grpc_port, "--grpc-port", credentials)

    async def _open_health(self) -> int:
        """Health has a port of its own, without TLS: Kubernetes' probes speak plain gRPC."""
        if self._listeners.health_port is None:
            return 0
        server = grpc.aio.server(options=_UNLIMITED)
        self._health.add_to(server)
        return await self._start(server, self._listeners.health_port, "--health-port", None)

    async def _start(
        self, server: grpc.aio.Server, port: int, option: str, credentials: grpc.ServerCredentials | None
    ) -> int:
        address = f"{self._listeners.host}:{port}"
        try:
            bound = server.add_secure_port(address, credentials) if credentials else server.add_insecure_port(address)
        except RuntimeError:
            raise _in_use(address, option) from None
        await server.start()
        self._servers.append(server)
        return bound

    async def _open_http(self, tls: ssl.SSLContext | None) -> int:
        host, port = self._listeners.host, self._listeners.http_port
        loop = asyncio.get_running_loop()
        try:
            http = await loop.create_server(self._writer.connection, host, port, ssl=tls, backlog=_WAITING)
        except OSError:
            raise _in_use(f"{host}:{port}", "--http-port") from None
        self._http.append(http)
        if path := self._listeners.socket:
            try:
                self._http.append(await loop.create_unix_server(self._writer.connection, path, backlog=_WAITING))
            except OSError:
                raise _in_use(path, "--socket") from None
        return int(http.sockets[0].getsockname()[1])

    def _open_pages(self) -> int:
        """Serve what ``enginehouse serve`` does too, if that is wanted."""
        host, port = self._listeners.host, self._listeners.port
        if port is None:
            return 0
        try:
            listening = socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
        except OSError:
            raise _in_use(f"{host}:{port}", "--port") from None
        config = uvicorn.Config(
            self._picker.application,
            http=cast("type[asyncio.Protocol]", self._picker.protocol),  # uvicorn only calls it
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
        )
        self._pages = _Pages(config)
        self._tasks.append(asyncio.ensure_future(self._pages.serve(sockets=[listening])))
        return int(listening.getsockname()[1])

    async def _keep_refreshing(self) -> None:
        while True:
            await asyncio.sleep(_REFRESH_S)
            await self._addresses.refresh(self._picker.urls)


class _Pages(uvicorn.Server):
    """A server that leaves signals to the picker."""

    def capture_signals(self) -> nullcontext[None]:  # type: ignore[override]
        return nullcontext()


def _in_use(address: str, option: str) -> ConfigError:
    return ConfigError(
        f"cannot listen on {address}", remedy=f"stop the program that listens there, or choose another {option}"
    )


def run(picker: Picker, listeners: Listeners) -> None:
    """``serve`` on an event loop of its own, uvloop's where there is one."""
    try:
        import uvloop
    except ImportError:
        asyncio.run(serve(picker, listeners))
    else:
        uvloop.run(serve(picker, listeners))
