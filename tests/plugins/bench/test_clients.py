"""The clients of the benchmark, before real sockets."""

from __future__ import annotations

import json

import pytest

from enginehouse.domain.errors import GatewayError
from enginehouse_bench.clients import Question, ask, read_streams
from tests.support.scripted_engine import END, Cut, ScriptedEngine, StartEngine, chunk

HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
EVENT = b'data: {"n": 1}\n\n'


def body_of(wire: bytes) -> bytes:
    return wire.partition(b"\r\n\r\n")[2]


@pytest.mark.parametrize("size", [0, 200, 1000, 1 << 20])
def test_a_request_has_the_size_asked_for(size: int) -> None:
    wire = next(Question("m", size).wires("http://h:1", stream=False))
    body = body_of(wire)
    assert size <= len(body) < max(size, 100) + 12
    assert f"content-length: {len(body)}\r\n".encode() in wire
    assert json.loads(body)["model"] == "m"


def test_unique_requests_differ_in_their_heads_only() -> None:
    wires = Question("m", unique=True).wires("http://h:1", stream=True)
    first, second = next(wires), next(wires)
    assert first != second
    assert body_of(first) == body_of(second)
    assert json.loads(body_of(first))["stream"] is True
    equal = Question("m", headers={"authorization": "Bearer k"}).wires("http://h:1/base", stream=False)
    assert next(equal) == next(equal)
    assert next(equal).startswith(b"POST /base/v1/chat/completions HTTP/1.1\r\nhost: h:1\r\n")
    assert b"\r\nauthorization: Bearer k\r\n" in next(equal)


async def test_clients_ask_until_the_time_is_over(engine: StartEngine) -> None:
    served = await engine()
    seen = await ask(served.url, Question("m"), clients=3, seconds=0.05)
    assert len(seen.waits) >= 3
    assert len(seen.waits) == len(served.calls)
    assert 0.05 <= seen.took < 5
    assert seen.chunks == 0


async def test_streams_are_read_to_their_end(engine: StartEngine) -> None:
    served = await engine()
    served.otherwise((HEAD + chunk(EVENT), chunk(EVENT) + END))
    seen = await read_streams(served.url, Question("m"), streams=4)
    assert (seen.chunks, len(seen.waits)) == (8, 4)


@pytest.mark.parametrize(
    ("script", "why"),
    [
        ((b"HTTP/1.1 503 Busy\r\ncontent-length: 0\r\n\r\n",), "status 503"),
        ((ScriptedEngine.CLOSE,), "a connection that was closed before the answer was whole"),
        ((HEAD + chunk(EVENT), Cut.CLOSE), "a connection that was closed before the answer was whole"),
        ((b"nonsense\r\n\r\n",), "an answer that is not HTTP"),
    ],
)
async def test_a_failure_is_told(engine: StartEngine, script: tuple[bytes, ...], why: str) -> None:
    served = await engine()
    served.otherwise(script)
    with pytest.raises(GatewayError, match=f"{served.url} cannot be measured: {why}"):
        await read_streams(served.url, Question("m"), streams=2)


async def test_nothing_listens() -> None:
    with pytest.raises(GatewayError, match="cannot be measured: "):
        await ask("http://127.0.0.1:9", Question("m"), clients=2, seconds=0.01)
