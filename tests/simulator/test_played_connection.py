"""The gateway's connections to the engines of a replay."""

from __future__ import annotations

import asyncio

from enginehouse_sim.simulator.replay.played_connection import HttpRequest, PlayedConnection


class Gateway(asyncio.Protocol):
    """The gateway's end."""

    def __init__(self) -> None:
        self.is_lost = False

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_lost = True


def serve(connection: PlayedConnection, request: HttpRequest) -> None: ...


def lost(connection: PlayedConnection) -> None: ...


async def connect(gateway: Gateway) -> PlayedConnection:
    return PlayedConnection(gateway, serve, lost)


async def test_the_gateway_hears_of_a_connection_that_it_closed() -> None:
    gateway = Gateway()
    (await connect(gateway)).abort()
    await asyncio.sleep(0)
    assert gateway.is_lost


def test_what_is_dropped_after_a_replay_closes_its_connection_without_a_loop() -> None:
    gateway = Gateway()
    connection = asyncio.run(connect(gateway))
    connection.abort()
    assert connection.is_closing()
    assert not gateway.is_lost
