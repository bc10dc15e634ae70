"""Measures a whole request in the gateway's own code, from the client's bytes to the answer's, without sockets."""

from __future__ import annotations

import asyncio
import itertools
import math
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from enginehouse.aio.clock import SYSTEM_CLOCK
from enginehouse.app import Gateway
from enginehouse.config.schema import Config, PluginSettings
from enginehouse.http.client_connection import ClientConnection
from enginehouse.http.cors import Cors
from enginehouse.http.server import HttpServer
from enginehouse.plugin_manager.discovery import load_plugins
from enginehouse.relay.upstream.connection import Connection
from tests.support.wire import Wire

BODY = b'{"model":"bench","messages":[{"role":"user","content":"Hello, world"}],"max_tokens":16}'
REQUEST = (
    b"POST /v1/chat/completions HTTP/1.1\r\nHost: gateway:8080\r\nAccept: application/json\r\n"
    b"Content-Type: application/json\r\nAuthorization: Bearer secret-3\r\nUser-Agent: bench/1.0\r\n"
    b"%sContent-Length: %d\r\n\r\n"
)
KEYS = {"auth": {"keys": [{"name": f"team-{number}", "key": f"secret-{number}"} for number in range(20)]}}
COMPLETION = (
    b'{"id":"x","object":"chat.completion","choices":[{"index":0,"message":{"role":"assistant","content":"Hello"},'
    b'"finish_reason":"stop"}],"usage":{"prompt_tokens":10,"completion_tokens":5,"total_tokens":15}}'
)
ANSWER = (
    b"HTTP/1.1 200 OK\r\nserver: engine\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"
    % len(COMPLETION)
) + COMPLETION


def repeated() -> Iterator[bytes]:
    """Requests of a client whose heads differ only in the length."""
    for n in itertools.count():
        body = BODY if n % 2 else BODY + b" "
        yield REQUEST % (b"", len(body)) + body


def unique() -> Iterator[bytes]:
    """Requests whose heads differ in a trace's id."""
    for n in itertools.count():
        yield REQUEST % (b"Traceparent: 00-%032x-%016x-00\r\n" % (n + 1, n + 1), len(BODY)) + BODY


@pytest.mark.parametrize("counted", ["nothing", "keys", "usage"])
@pytest.mark.parametrize("requests", [repeated, unique])
def test_a_request(
    benchmark: BenchmarkFixture, requests: Callable[[], Iterator[bytes]], counted: str, tmp_path: Path
) -> None:
    """``counted``: a gateway without keys, one with 20 keys, and one that also sums up what they use."""

    async def main() -> None:
        backends = {name: {"url": "http://127.0.0.1:9", "models": ["bench"]} for name in ("a", "b", "c")}
        sections = {"backends": backends, **({} if counted == "nothing" else KEYS)}
        gateway = Gateway(msgspec.convert(sections, Config), load_plugins(PluginSettings()).registry)
        if counted == "usage":
            gateway.callers.open(tmp_path)
        for upstream in gateway.relay.context.upstreams.values():  # an engine without a name for priorities
            gateway.relay.context.engine_facts._of(upstream).order_until = math.inf
        engines, batches = [], {gateway.admission.writes}
        for name, upstream in gateway.relay.context.upstreams.items():
            gateway.fleet.succeeded(name)
            engine = Connection(upstream.pool._keep, upstream.pool._remove, upstream.pool._writes, SYSTEM_CLOCK.now)
            engine.connection_made(Wire())
            upstream.pool._keep(engine)
            engines.append(engine)
            batches.add(upstream.pool._writes)
        path = gateway.path
        server = HttpServer(gateway.application, path.admission, path.paths, Cors(()), set(), set())
        client, wire = ClientConnection(server), Wire()
        client.connection_made(wire)
        prepared = itertools.cycle(list(itertools.islice(requests(), 10_000)))

        def request() -> None:
            client.data_received(next(prepared))
            for batch in batches:
                batch.send()
            for engine in engines:
                if not engine.usable:
                    engine.data_received(ANSWER)
            for batch in batches:
                batch.send()

        benchmark(request)
        assert wire.last.startswith(b"HTTP/1.1 200 OK")
        assert not gateway.relay.live
        gateway.relay.close()

    asyncio.run(main())
