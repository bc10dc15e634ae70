"""Which of several workers gets a connection."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import pytest

from enginehouse.processes.workers import worker_server
from enginehouse.processes.workers.worker_server import FairListener
from tests.support.waiting import until


class _Protocol(asyncio.Protocol):
    def __init__(self, made: list[int], number: int) -> None:
        self._made, self._number = made, number

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._made.append(self._number)
        transport.close()


@contextmanager
def listening(counts: list[int], *numbers: int) -> Iterator[tuple[socket.socket, list[int]]]:
    """The listeners of the workers with these ``numbers``, whose connections stay as many as they are in ``counts``."""
    board, made = memoryview(bytearray(4 * len(counts))).cast("i"), list[int]()
    for number, count in enumerate(counts):
        board[number] = count
    with socket.create_server(("127.0.0.1", 0)) as server:
        listeners = [
            FairListener(server.dup(), board, each, partial(_Protocol, made, each), partial(counts.__getitem__, each))
            for each in numbers
        ]
        for listener in listeners:
            listener.open()
        try:
            yield server, made
        finally:
            for listener in listeners:
                listener.close()


async def connect(server: socket.socket) -> None:
    _, writer = await asyncio.open_connection(*server.getsockname())
    writer.close()


async def test_a_worker_with_many_connections_leaves_new_ones_to_another(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_server, "_PAUSE_S", 60)  # else it takes what comes while a pause ends
    with listening([40, 0], 0, 1) as (server, made):
        for _ in range(5):
            await connect(server)
        await until(lambda: len(made) == 5)
        assert made == [1] * 5


async def test_what_no_other_worker_takes_it_takes_all_the_same() -> None:
    with listening([40, 0], 0) as (server, made):
        await connect(server)
        await connect(server)
        await until(lambda: made == [0, 0])
