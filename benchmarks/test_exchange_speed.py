"""Measures an exchange by itself, from the whole request to the end of the answer, without sockets."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

import msgspec
import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from enginehouse.aio.clock import SYSTEM_CLOCK
from enginehouse.app import Gateway
from enginehouse.config.schema import Config, PluginSettings
from enginehouse.plugin_manager.discovery import load_plugins
from enginehouse.relay.heads import AnswerHead
from enginehouse.relay.response_writer import ResponseWriter
from enginehouse.relay.upstream.connection import Connection, Receiver
from enginehouse.relay.upstream.upstream import Pool
from tests.support.wire import Wire

HEADERS = [(b"host", b"gateway"), (b"content-type", b"application/json"), (b"user-agent", b"bench")]
BODY = b'{"model":"bench","messages":[{"role":"user","content":"Hello, world"}],"max_tokens":16}'
STREAMED = BODY.replace(b"{", b'{"stream":true,', 1)
PLAIN = AnswerHead(200, b"content-type: application/json\r\n", 200, False, False)
STREAM = AnswerHead(200, b"content-type: text/event-stream\r\n", None, False, True)
EVENT = b'data: {"id":"c","choices":[{"index":0,"delta":{"content":" token"},"finish_reason":null}]}\n\n'
SHORT = b'{"id":"c","choices":[{"index":0,"message":{"content":"%s"}}]}' % (b" token" * 23)
WHOLE = b'{"id":"c","choices":[{"index":0,"message":{"content":"%s"}}]}' % (b" token" * 100)
LAST = b"data: [DONE]\n\n"


class Silent(ResponseWriter):
    """A client that takes everything."""

    def start(self, status: int, lines: bytes, length: int | None) -> None: ...
    def write(self, chunk: bytes) -> None: ...
    def finish(self, chunk: bytes) -> None: ...
    def abort(self) -> None: ...
    def unread(self) -> int:
        return 0


class Engines:
    """An idle connection to each engine. The benchmark makes their answers."""

    def __init__(self, pools: Iterable[Pool]) -> None:
        self._connections = [
            (pool, Connection(pool.keep, pool._remove, pool._writes, SYSTEM_CLOCK.now)) for pool in pools
        ]
        for pool, connection in self._connections:
            connection.connection_made(Wire())
            pool.keep(connection)

    @property
    def receiver(self) -> Receiver:
        """The receiver of the request that is under way. Its connection may serve the next one."""
        for pool, connection in self._connections:
            receiver, connection._receiver = connection._receiver, None
            if receiver is not None:
                pool.keep(connection)
                return receiver
        raise LookupError("no request is under way")


def in_gateway(run: Callable[[Gateway, Engines], None], driver: str = "openai", **routing: object) -> None:
    async def main() -> None:
        each = {"url": "http://127.0.0.1:9", "models": ["bench"], "driver": driver}
        config = msgspec.convert({"backends": dict.fromkeys("abc", each), "routing": routing}, Config)
        gateway = Gateway(config, load_plugins(PluginSettings()).registry)
        upstreams = gateway.relay.context.upstreams
        for name in upstreams:
            gateway.fleet.succeeded(name)
        run(gateway, Engines(upstream.pool for upstream in upstreams.values()))
        gateway.relay.close()

    asyncio.run(main())


def test_a_plain_request(benchmark: BenchmarkFixture) -> None:
    writer = Silent()

    def measure(gateway: Gateway, engines: Engines) -> None:
        def request() -> None:
            gateway.relay.open(writer, "/v1/chat/completions", HEADERS).begin(BODY)
            engines.receiver.answer(PLAIN, SHORT, True)

        benchmark(request)
        assert not gateway.relay.live

    in_gateway(measure)


def test_a_stream_of_100_pieces(benchmark: BenchmarkFixture) -> None:
    writer = Silent()

    def measure(gateway: Gateway, engines: Engines) -> None:
        def request() -> None:
            gateway.relay.open(writer, "/v1/chat/completions", HEADERS).begin(STREAMED)
            receiver = engines.receiver
            receiver.answer(STREAM, b"", False)
            for _ in range(100):
                receiver.answer(None, EVENT, False)
            receiver.answer(None, LAST, True)

        benchmark(request)
        assert not gateway.relay.live

    in_gateway(measure)


@pytest.mark.parametrize("gather", [True, False])
def test_an_answer_of_100_pieces_without_a_stream(benchmark: BenchmarkFixture, gather: bool) -> None:
    """With ``routing.gather``, against the same answer from an engine that sends it whole."""
    writer = Silent()

    def measure(gateway: Gateway, engines: Engines) -> None:
        def request() -> None:
            gateway.relay.open(writer, "/v1/chat/completions", HEADERS).begin(BODY)
            receiver = engines.receiver
            if not gather:
                receiver.answer(PLAIN, WHOLE, True)
                return
            receiver.answer(STREAM, b"", False)
            for _ in range(100):
                receiver.answer(None, EVENT, False)
            receiver.answer(None, LAST, True)

        benchmark(request)
        assert not gateway.relay.live

    in_gateway(measure, "vllm", gather=gather)
