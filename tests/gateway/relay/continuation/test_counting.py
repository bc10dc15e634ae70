"""Many streams, each moved several times, read as if they had not been moved."""

from __future__ import annotations

import asyncio
from typing import Any, NamedTuple

import msgspec
import pytest

from tests.support.model_engine import StartModelEngine
from tests.support.seen_stream import SeenStream, read_stream
from tests.support.served_gateway import MODEL, OpenGateway, ServedGateway
from tests.support.streaming_model import stream

CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
MOVES = 5
EVENTS = 24
"""What each engine sends of a stream before it is moved on."""


class Asked(NamedTuple):
    """A request, and the stream that it would get if it were not moved."""

    id: bytes
    path: str
    body: dict[str, Any]
    whole: SeenStream


def requests(count: int) -> list[Asked]:
    """Requests to both endpoints with all options, whose streams are long enough to be moved often."""
    made: list[Asked] = []
    salt = 0
    while len(made) < count:
        salt += 1
        n = len(made)
        path = CHAT if n % 2 else COMPLETIONS
        prompt = {"messages": [{"role": "user", "content": f"{salt}"}]} if n % 2 else {"prompt": f"{salt}"}
        body: dict[str, Any] = {"model": MODEL, "stream": True, "max_tokens": 240, **prompt}
        if n & 2:
            body["stream_options"] = {"include_usage": True, "continuous_usage_stats": bool(n & 1)}
        if n & 4:
            body |= {"stop": [" b a]", "END\n"], "include_stop_str_in_output": bool(n & 1)}
        elif n & 8:
            body["min_tokens"] = 200
        if n & 16:
            body["return_token_ids"] = True
        whole = read_stream(b"".join(stream(path, msgspec.json.encode(body))))
        events = len(list(stream(path, msgspec.json.encode(body | {"return_token_ids": True}))))
        if events > (MOVES + 2) * EVENTS + 10:
            made.append(Asked(b"r%d" % n, path, body, whole))
    return made


async def read(gateway: ServedGateway, asked: Asked) -> bytes:
    reply = await gateway.ask(gateway.post(asked.body, b"x-request-id: " + asked.id, path=asked.path))
    assert reply.whole
    return reply.body


async def move_on(gateway: ServedGateway, asked: Asked) -> None:
    [live] = gateway.relay.find(asked.id.decode())
    await gateway.until(lambda: (live.tokens().output or 0) > 0 and live.why_not_movable is None)
    assert live.route is not None
    here = live.route.chosen.backend
    await gateway.relay.move(asked.id.decode(), "abc"[("abc".index(here) + 1) % 3])


@pytest.mark.parametrize("count", [40, pytest.param(200, marks=pytest.mark.slow)])
async def test_streams_that_are_moved_again_and_again_are_exact(
    house: OpenGateway, model_engine: StartModelEngine, count: int
) -> None:
    engines = [await model_engine() for _ in range(3)]
    gateway = await house(*engines, backend={"driver": "vllm"}, rescheduling={"migrate_timeout": 120})
    last = asyncio.Event()
    for engine in engines:
        engine.gate = (EVENTS, last)
    all_asked = requests(count)
    reading = [asyncio.ensure_future(read(gateway, asked)) for asked in all_asked]
    await gateway.until(lambda: len(gateway.relay.live) == count)
    for _ in range(MOVES):
        await asyncio.gather(*(move_on(gateway, asked) for asked in all_asked))
    assert all(live.moves == MOVES for live in gateway.relay.live)
    last.set()
    for asked, wire in zip(all_asked, await asyncio.gather(*reading), strict=True):
        seen = read_stream(wire)
        assert (seen.answer, seen.counts, len(seen.heads)) == (asked.whole.answer, asked.whole.counts, 1), asked.body
    await gateway.quiet()
