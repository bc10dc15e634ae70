"""A server that stops."""

from __future__ import annotations

import asyncio
import socket
from types import SimpleNamespace
from typing import Any

import pytest
import uvicorn

from enginehouse.processes.accepting import AcceptingServer
from tests.support.waiting import within


async def test_a_stop_that_fails_leaves_no_connection_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    closed: list[bool] = []

    async def nothing(*_: Any) -> None: ...

    async def close() -> None:
        closed.append(True)

    async def stop() -> None:
        raise OSError("the disk is full")

    monkeypatch.setattr(uvicorn.Server, "shutdown", nothing)
    server: Any = object.__new__(AcceptingServer)
    server.config, server.force_exit, server.successor = SimpleNamespace(), False, SimpleNamespace(close=close)
    with pytest.raises(OSError, match="the disk is full"):
        await server.end(1.0, stop)
    assert closed


class Leaves(asyncio.Protocol):
    def connection_made(self, transport: Any) -> None:
        transport.abort()


class Crowded:
    """A listening socket to which another client connects as soon as one is accepted."""

    def __init__(self) -> None:
        self.clients: list[socket.socket] = []

    def setblocking(self, flag: bool) -> None: ...

    def accept(self) -> tuple[socket.socket, str]:
        ours, theirs = socket.socketpair()
        self.clients.append(theirs)
        return ours, ""


async def test_clients_that_go_on_connecting_do_not_keep_it_from_stopping() -> None:
    listening, closed = Crowded(), []
    server: Any = object.__new__(AcceptingServer)
    server.config, server.servers, server._connection = SimpleNamespace(backlog=3), [], Leaves
    server.listeners = SimpleNamespace(sockets=[listening], close=lambda: closed.append(True))
    await within(server.close_listeners())
    assert (len(listening.clients), closed) == (3, [True])
    for client in listening.clients:
        client.close()


async def test_a_server_that_accepts_already_does_not_listen_twice() -> None:
    listening = socket.create_server(("127.0.0.1", 0))
    server: Any = object.__new__(AcceptingServer)
    server.config, server.servers, server._connection = SimpleNamespace(backlog=3), [], Leaves
    server.listeners = SimpleNamespace(copies=lambda: [listening.dup()])
    await server.accept()
    await server.accept()  # after a take-over that did not get as far as to stop it
    assert len(server.servers) == 1
    server.stop_accepting()
    assert server.servers == []
    listening.close()
