"""The server of a gateway's connections, without a listening socket."""

from __future__ import annotations

import asyncio
from typing import Any, cast

from enginehouse.app import Gateway
from enginehouse.http.client_connection import ClientConnection
from enginehouse.http.cross_origin import Cors
from enginehouse.http.server import HttpServer
from enginehouse.processes.workers.worker import Worker


def http_server(
    gateway: Gateway | Worker,
    connections: set[Any] | None = None,
    tasks: set[asyncio.Task[None]] | None = None,
) -> HttpServer:
    """The server of ``gateway``, with its open connections and the tasks of its pages."""
    path = gateway.path
    return HttpServer(
        gateway.application if isinstance(gateway, Gateway) else gateway.pages,
        path.admission,
        path.paths,
        Cors(path.config.server.cors),
        set() if connections is None else connections,
        set() if tasks is None else tasks,
    )


def connect(server: HttpServer, *, resumes: bytes = b"", received: bytes = b"") -> asyncio.Protocol:
    """A new connection, or one of an earlier gateway. It has the methods of a protocol, and inherits from nothing."""
    return cast("asyncio.Protocol", ClientConnection(server, resumes=resumes, received=received))
