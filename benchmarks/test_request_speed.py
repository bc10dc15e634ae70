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
from enginehouse.http.cross_origin import Cors
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


EVENT = (
    b'data: {"id":"x","object":"chat.completion.chunk","created":1,"model":"bench","choices":[{"index":0,'
    b'"delta":{"content":" word%d"},"finish_reason":%s}]}\n\n'
)


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


STREAM = [
    b"HTTP/1.1 200 OK\r\nserver: engine\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n",
    *[chunk(EVENT % (number, b"null")) for number in range(30)],
    chunk(EVENT % (30, b'"stop"')) + chunk(b"data: [DONE]\n\n") + b"0\r\n\r\n",
]
LONG = b'{"role":"system","content":"%s"},{"role"' % (b"You are a helpful assistant. " * 100)


def repeated() -> Iterator[bytes]:
    """Requests of a client whose heads differ only in the length."""
    for n in itertools.count():
        body = BODY if n % 2 else BODY + b" "
        yield REQUEST % (b"", len(body)) + body


def unique() -> Iterator[bytes]:
    """Requests whose heads differ in a trace's id."""
    for n in itertools.count():
        yield REQUEST % (b"Traceparent: 00-%032x-%016x-00\r\n" % (n + 1, n + 1), len(BODY)) + BODY


def long() -> Iterator[bytes]:
    """Requests whose system prompt has 3,000 characters, which strategies compare."""
    body = BODY.replace(b'{"role"', LONG)
    for n in itertools.count():
        yield REQUEST % (b"X-Request-Id: %d\r\n" % n, len(body)) + body


def streamed() -> Iterator[bytes]:
    """Requests for streams; their answers have 31 events."""
    body = BODY.replace(b"{", b'{"stream":true,', 1)
    for n in itertools.count():
        yield REQUEST % (b"X-Request-Id: %d\r\n" % n, len(body)) + body


@pytest.mark.parametrize("counted", ["nothing", "keys", "usage"])
@pytest.mark.parametrize("requests", [repeated, unique, long, streamed])
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
            engine = Connection(upstream.pool.keep, upstream.pool._remove, upstream.pool._writes, SYSTEM_CLOCK.now)
            engine.connection_made(Wire())
            upstream.pool.keep(engine)
            engines.append(engine)
            batches.add(upstream.pool._writes)
        path = gateway.path
        server = HttpServer(gateway.application, path.admission, path.paths, Cors(()), set(), set())
        client, wire = ClientConnection(server), Wire()
        client.connection_made(wire)
        answer = STREAM if requests is streamed else [ANSWER]
        prepared = itertools.cycle(list(itertools.islice(requests(), 10_000)))

        def request() -> None:
            client.data_received(next(prepared))
            for batch in batches:
                batch.send()
            for engine in engines:
                if engine._receiver is not None:
                    for piece in answer:
                        engine.data_received(piece)
                        for batch in batches:
                            batch.send()

        benchmark(request)
        assert wire.last.startswith(b"HTTP/1.1 200 OK") or wire.last.endswith(b"\r\n0\r\n\r\n")
        assert not gateway.relay.live
        gateway.relay.close()

    asyncio.run(main())
