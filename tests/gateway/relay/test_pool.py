"""The connections to an engine: which are kept, for how long, and what happens when no more can be opened."""

from __future__ import annotations

import asyncio
import errno
import logging
import ssl
from typing import Any

import pytest

from enginehouse.aio.clock import SYSTEM_CLOCK, Clock
from enginehouse.config.schema import BackendSettings, TimeoutSettings
from enginehouse.domain.errors import Overloaded, UpstreamError
from enginehouse.engines.probing import HealthCheck
from enginehouse.relay.upstream.client import Client
from enginehouse.relay.upstream.connection import Connection
from enginehouse.relay.upstream.outside import Connector, Origin, Outside
from enginehouse.relay.upstream.upstream import Pool, Upstream
from enginehouse_openai import OpenAIDriver
from tests.support.at_once import AT_ONCE
from tests.support.fake_clock import FakeClock
from tests.support.fake_transport import FakeTransport
from tests.support.fake_upstream import IgnoredAnswer, KeptAnswer
from tests.support.garbage import living, without_collector
from tests.support.scripted_engine import StartEngine
from tests.support.served_gateway import OpenGateway
from tests.support.virtual_time import Run
from tests.support.virtual_time import in_virtual_time as in_virtual_time

ORIGIN = Origin.parse("http://engine:1")
ANSWER = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n"


def leave_no_file(monkeypatch: pytest.MonkeyPatch, *ports: int) -> None:
    """Have connections to ``ports`` fail for lack of files, or to any port."""
    loop = asyncio.get_running_loop()
    create = loop.create_connection

    async def fail(protocol: Any, host: Any = None, port: Any = None, **options: Any) -> Any:
        if not ports or port in ports:
            raise OSError(errno.EMFILE, "Too many open files")
        return await create(protocol, host, port, **options)

    monkeypatch.setattr(loop, "create_connection", fail)


def serving(pool: Pool) -> tuple[Connection, FakeTransport]:
    """A new connection of ``pool`` with a request on it."""
    transport = FakeTransport()
    connection = Connection(pool.keep, pool._remove, AT_ONCE, SYSTEM_CLOCK.now)
    connection.connection_made(transport)
    connection.send(IgnoredAnswer(), b"request")
    return connection, transport


def virtual_clock() -> Clock:
    return Clock(asyncio.get_running_loop().time)


def check_open(run: Run, connections: int, expected: list[tuple[float, int]]) -> None:
    """Answer ``connections`` together. ``expected``: seconds to let pass, and how many are open then."""

    async def main() -> None:
        pool = Pool(ORIGIN, Outside(virtual_clock()), most_idle=4)
        made = [serving(pool) for _ in range(connections)]
        for connection, _ in made:
            connection.data_received(ANSWER)
        for pause, count in expected:
            await asyncio.sleep(pause)
            assert sum(not transport.closing for _, transport in made) == count
        pool.close()
        assert all(transport.closing for _, transport in made)

    run(main())


def test_many_connections_are_idle_only_for_a_moment(in_virtual_time: Run) -> None:
    check_open(in_virtual_time, 50, [(0.001, 50), (0.1, 4)])


def test_few_connections_are_kept_for_less_than_an_engines_keep_alive(in_virtual_time: Run) -> None:
    check_open(in_virtual_time, 4, [(1.5, 4), (2.5, 0)])


class AtOnce(Connector):
    """Connects to an engine that answers whenever it is told to."""

    def __init__(self) -> None:
        self.transports: list[FakeTransport] = []

    async def connect(self, protocol: asyncio.Protocol, origin: Origin, tls: ssl.SSLContext | None) -> None:
        self.transports.append(FakeTransport())
        protocol.connection_made(self.transports[-1])

    @property
    def open(self) -> int:
        return sum(not transport.closing for transport in self.transports)


async def burst(pool: Pool, size: int) -> None:
    """Serve ``size`` requests at once."""
    lent = [pool.take() or await pool.connect() for _ in range(size)]
    for connection in lent:
        connection.send(IgnoredAnswer(), b"request")
    await asyncio.sleep(0)  # until the batch of writes has left
    for connection in lent:
        connection.data_received(ANSWER)


@pytest.mark.parametrize("size", [8, 32, 128])
def test_bursts_find_their_connections_open(in_virtual_time: Run, size: int) -> None:
    async def main() -> None:
        engine = AtOnce()
        pool = Pool(ORIGIN, Outside(virtual_clock(), engine))
        for _ in range(50):
            await burst(pool, size)
            await asyncio.sleep(0.1)
        assert len(engine.transports) == size
        pool.close()

    in_virtual_time(main())


def test_what_the_last_seconds_did_not_need_is_closed(in_virtual_time: Run) -> None:
    async def main() -> None:
        engine = AtOnce()
        pool = Pool(ORIGIN, Outside(virtual_clock(), engine))
        await burst(pool, 64)
        found = []
        for _ in range(4):
            for _ in range(10):
                await burst(pool, 8)
                await asyncio.sleep(0.1)
            found.append(engine.open)
        assert found == [64, 8, 8, 8]
        pool.close()

    in_virtual_time(main())


def test_a_connection_in_use_stays_open(in_virtual_time: Run) -> None:
    async def main() -> None:
        pool = Pool(ORIGIN, Outside(virtual_clock()))
        connection, transport = serving(pool)
        connection.data_received(ANSWER)
        for _ in range(20):
            await asyncio.sleep(1)
            kept = pool.take()
            assert kept is connection
            kept.send(IgnoredAnswer(), b"request")
            kept.data_received(ANSWER)
        assert not transport.closing
        pool.close()

    in_virtual_time(main())


@pytest.mark.parametrize(("seconds", "stale"), [(0.0, True), (0.9, True), (1.1, False), (600.0, False)])
def test_a_kept_connection_that_breaks_after_a_second_was_at_work(seconds: float, stale: bool) -> None:
    clock, receiver = FakeClock(), KeptAnswer()
    connection = Connection(lambda _: None, lambda _: None, AT_ONCE, clock.now)
    connection.connection_made(FakeTransport())
    connection.send(IgnoredAnswer(), b"request")
    clock.stall(300.0)
    connection.data_received(ANSWER)
    clock.stall(2.0)
    connection.send(receiver, b"request")
    clock.stall(seconds)
    connection.connection_lost(ConnectionResetError("reset"))
    assert (receiver.stale, bool(receiver.broke)) == (stale, True)


async def test_no_engine_is_blamed_where_the_gateway_has_no_file_left(
    house: OpenGateway, engine: StartEngine, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    engines = [await engine(), await engine()]
    gateway = await house(*engines)
    leave_no_file(monkeypatch, *[int(each.url.rpartition(":")[2]) for each in engines])
    with caplog.at_level(logging.WARNING, "enginehouse.relay"):
        for _ in range(5):
            reply = await gateway.ask()
            assert (reply.status, reply.code, reply.header("retry-after")) == (503, "overloaded", "1")
            assert "open files" in reply.error["message"]
    assert [backend.last_error for backend in gateway.fleet.backends()] == [None, None]
    assert gateway.relay.context.counters.retries == {}
    warnings = [record for record in caplog.records if "open no more connections" in record.getMessage()]
    assert len(warnings) == 1
    monkeypatch.undo()
    assert (await gateway.ask()).status == 200


async def test_a_connection_that_the_engine_refuses_is_its_own_problem() -> None:
    with pytest.raises(UpstreamError, match="cannot connect"):
        await Pool(Origin.parse("http://127.0.0.1:1"), Outside()).connect()


def test_a_shortage_of_files_is_told_from_an_unreachable_engine(
    in_virtual_time: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        async def fail(*args: Any, **options: Any) -> Any:
            raise OSError(errno.ENFILE, "Too many open files in system")

        monkeypatch.setattr(asyncio.get_running_loop(), "create_connection", fail)
        with pytest.raises(Overloaded, match="in system"):
            await Pool(ORIGIN, Outside()).connect()

    in_virtual_time(main())


async def test_a_probe_that_could_not_be_sent_is_no_verdict(monkeypatch: pytest.MonkeyPatch) -> None:
    leave_no_file(monkeypatch)
    client = Client(Upstream("a", BackendSettings(url="http://engine:1"), TimeoutSettings(), Outside()), 1.0)
    with pytest.raises(Overloaded):
        await HealthCheck(OpenAIDriver()).problem(client, 1.0)


def test_a_lost_connection_does_not_wait_for_the_garbage_collector() -> None:
    with without_collector():
        connection = Connection(lambda _: None, lambda _: None, AT_ONCE, SYSTEM_CLOCK.now)
        connection.connection_made(FakeTransport())
        connection.send(KeptAnswer(), b"request")
        connection.data_received(ANSWER)
        connection.connection_lost(None)
        assert living(Connection) == 1
        del connection
        assert living(Connection) == 0
